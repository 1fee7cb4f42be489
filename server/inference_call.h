// One ModelInfer call: an inference that came alone.
#pragma once

#include <grpcpp/grpcpp.h>

#include "server/inference.h"
#include "server/inference_service.h"

namespace headroom {

// Owns itself: deletes itself when gRPC has done with it, and the inference with it. Answers exactly once.
class InferenceCall final : public grpc::ServerUnaryReactor {
 public:
  // What is passed outlives the call; gRPC keeps the buffers until then.
  InferenceCall(const ServiceParts& parts, grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                grpc::ByteBuffer* response);

  // To be called once, before the call is handed to gRPC.
  void Start() { inference_.Start(); }

  void OnCancel() override { inference_.Cancel(); }
  // Not before Start has returned, whoever has answered meanwhile.
  void OnDone() override { delete this; }

 private:
  void Answer(const InferenceEnd& end);

  grpc::CallbackServerContext* const context_;
  Inference inference_;
};

}  // namespace headroom
