// The gRPC port.
#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/grpcpp.h>

#include <memory>

#include "server/inference_service.h"
#include "server/options.h"

namespace headroom {

// Thread-safe.
class GrpcListener {
 public:
  // Listens and answers at once; health says NOT_SERVING until SetServing(true). `service` outlives the listener. An error names
  // the address.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Start(const Address& address, const RequestLimits& limits,
                                                             InferenceService& service);
  // Calls that are still open after a third of a second are cancelled; waits for those whose batch runs.
  ~GrpcListener();
  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  // What grpc.health.v1 says, for the server and for the service.
  void SetServing(bool serving);
  // What gRPC may hold of messages that are on their way, from now on. It ends calls, RESOURCE_EXHAUSTED, to get back under it, so
  // that it is passed for moments.
  void LimitBuffers(Bytes limit);
  int port() const { return port_; }

 private:
  GrpcListener() = default;

  grpc::ResourceQuota buffers_{"headroom"};
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace headroom
