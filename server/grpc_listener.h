// A gRPC port.
#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_builder.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/sync.h"
#include "server/connection_gate.h"
#include "server/options.h"
#include "server/port_credentials.h"

namespace headroom {

struct ListenerSettings {
  const char* flag = "--grpc-address";  // for the text of faults
  Address address;
  RequestLimits limits;
  WireLimits wire;
  PortSecurity security;
};

// Thread-safe.
class GrpcListener {
 public:
  // Listens and answers at once; health says NOT_SERVING until SetServing(true). `service` and `clock` outlive the listener. An
  // error names the flag, and the address or the file.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Start(const ListenerSettings& settings, grpc::Service& service,
                                                             Clock& clock);
  // Calls that are still open after a third of a second are cancelled; waits for those whose batch runs.
  ~GrpcListener();
  // To be called once, when no new call is admitted any more: lets go of the port, and after a moment, in which who watches health
  // leaves by itself, tells every connection to go away. Calls under way go on. Returns at once.
  void SendAway();
  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  // What grpc.health.v1 says, for the server and for the service.
  void SetServing(bool serving);
  // What gRPC may hold of messages that are on their way, from now on. It ends calls, RESOURCE_EXHAUSTED, to get back under it, so
  // that it is passed for moments.
  void LimitBuffers(Bytes limit);
  // Where it listens, with the port that was taken.
  Address address() const;
  // Its connections: how many are open, how many were refused so far.
  std::int64_t connections() const { return gate_->open(); }
  std::int64_t refused_connections() const { return gate_->refused(); }

 private:
  GrpcListener() = default;
  // Waits for the calls under way, up to a third of a second; cancels the others.
  void EndCalls() EXCLUDES(mutex_);

  grpc::ResourceQuota buffers_{"headroom"};
  std::string host_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;  // gRPC calls them as long as there is a server
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ConnectionGate> gate_;  // ends first: what it accepts goes to the server

  Mutex mutex_;
  CondVar ended_;
  bool shut_down_ GUARDED_BY(mutex_) = false;  // no call is under way any more
  std::jthread sending_away_;
};

}  // namespace headroom
