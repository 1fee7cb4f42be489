// The gRPC port.
#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <thread>

#include "base/sync.h"
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
  // To be called once, when no new call is admitted any more: after a moment, in which who watches health leaves by itself, lets go
  // of the port and tells every connection to go away. Calls under way go on. Returns at once.
  void SendAway();
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
  // Waits for the calls under way, up to a third of a second; cancels the others.
  void EndCalls() EXCLUDES(mutex_);

  grpc::ResourceQuota buffers_{"headroom"};
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;

  Mutex mutex_;
  CondVar ended_;
  bool shut_down_ GUARDED_BY(mutex_) = false;  // no call is under way any more
  std::jthread sending_away_;
};

}  // namespace headroom
