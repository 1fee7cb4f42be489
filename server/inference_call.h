// One ModelInfer call from its arrival to its answer: the life of a request, seen from the wire.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

#include "batching/request.h"
#include "memory/host_budget.h"
#include "server/inference_service.h"
#include "server/message_scan.h"
#include "server/request_codec.h"

namespace headroom {

// Owns itself: deletes itself when gRPC has done with it. Answers exactly once.
class InferenceCall final : public grpc::ServerUnaryReactor {
 public:
  // What is passed outlives the call; gRPC keeps the buffers until then.
  InferenceCall(const ServiceParts& parts, grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                grpc::ByteBuffer* response);

  // Decodes, admits and enqueues; or answers at once. To be called once, before the call is handed to gRPC.
  void Start();

  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  // Errors are refusals, before any row is queued.
  absl::Status Enqueue();
  // By the version in `entry_`. UNAVAILABLE where its queue is closed.
  absl::Status DecodeAndQueue();
  // Notes how `status` is counted.
  absl::Status Refuse(absl::Status status);
  // RESOURCE_EXHAUSTED, retryable, where the caller's requests have been mostly wrong.
  absl::Status AskBreaker();
  absl::Status ReserveHostMemory(const RequestEnvelope& envelope);
  // Where memory is very short: the model that answers in place of the one asked for.
  void FallBack();
  // RESOURCE_EXHAUSTED, retryable, for what is left out while memory is short.
  absl::Status CheckDegradation();
  absl::Status CheckRoom() const;
  // Tells a client's retry policy when to come again, or, where `wait` is negative, that it need not.
  void PushBack(Duration wait);
  // The answer of the request's rows; on the thread that finished the last one.
  void Answer(Reply reply);
  // Nothing reads the request any more: its memory goes, and the right to it.
  void LetGoOfRequest();
  void Conclude(const absl::Status& status, Outcome outcome, std::int64_t rows);

  const ServiceParts& parts_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const request_bytes_;
  grpc::ByteBuffer* const response_bytes_;
  const TimePoint arrived_;

  BreakerPass pass_;
  bool too_large_ = false;                  // a row could not fit the idle device
  HostReservation request_memory_;          // outlives what it is for
  HostReservation reply_memory_;            // until gRPC has sent the reply
  inference::ModelInferRequest message_;    // rows are views into it
  std::string counted_as_ = kUnknownModel;  // the model's name in metrics
  Outcome refusal_ = Outcome::kFailed;      // the outcome, where Enqueue ended in an error
  CatalogEntry entry_;                      // of the model that answers
  std::string served_by_;                   // its name, where another was asked for
  DecodedRequest decoded_;
  std::shared_ptr<Request> request_;
  Admittance admittance_;  // held until gRPC has done with the call, so that a drain waits for the answer to be sent
};

}  // namespace headroom
