#include "server/health_command.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "proto/open_inference.grpc.pb.h"

namespace headroom {

int HealthCommand(const HealthOptions& options) {
  Address target = options.address;
  // A server that listens on every interface is asked on this machine.
  if (target.host == "0.0.0.0") target.host = "127.0.0.1";
  if (target.host == "::") target.host = "::1";
  const auto channel = grpc::CreateChannel(ToString(target), grpc::InsecureChannelCredentials());
  const auto stub = inference::GRPCInferenceService::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_REALTIME),
                                    gpr_time_from_millis(static_cast<std::int64_t>(options.timeout_seconds * 1000), GPR_TIMESPAN)));
  context.set_wait_for_ready(false);
  inference::ServerReadyResponse response;
  const grpc::Status status = stub->ServerReady(&context, {}, &response);
  if (status.ok() && response.ready()) return 0;
  const std::string why = status.ok() ? "it is not ready" : status.error_message();
  std::fprintf(stderr, "headroom: the server at %s does not serve: %s\n", ToString(options.address).c_str(), why.c_str());
  return 1;
}

}  // namespace headroom
