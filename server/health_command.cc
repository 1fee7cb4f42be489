#include "server/health_command.h"

#include <absl/status/statusor.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "base/status_macros.h"
#include "proto/open_inference.grpc.pb.h"
#include "server/watched_files.h"

namespace headroom {
namespace {

constexpr std::size_t kLargestFile = 1 << 20;

absl::Status ReadInto(const std::string& path, std::string& text) {
  if (path.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(text, ReadSmallFile(path, kLargestFile));
  return absl::OkStatus();
}

// Plain where nothing of TLS is asked for.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(const HealthOptions& options) {
  const bool tls = options.tls || !options.tls_ca.empty() || !options.tls_certificate.empty() || !options.tls_server_name.empty();
  if (!tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions files;
  RETURN_IF_ERROR(ReadInto(options.tls_ca, files.pem_root_certs));
  RETURN_IF_ERROR(ReadInto(options.tls_certificate, files.pem_cert_chain));
  RETURN_IF_ERROR(ReadInto(options.tls_key, files.pem_private_key));
  return grpc::SslCredentials(files);
}

int NotReady(const HealthOptions& options, const std::string& why) {
  std::fprintf(stderr, "headroom: the server at %s does not serve: %s\n", ToString(options.address).c_str(), why.c_str());
  return 1;
}

}  // namespace

int HealthCommand(const HealthOptions& options) {
  Address target = options.address;
  // A server that listens on every interface is asked on this machine.
  if (target.host == "0.0.0.0") target.host = "127.0.0.1";
  if (target.host == "::") target.host = "::1";
  const auto credentials = MakeCredentials(options);
  if (!credentials.ok()) return NotReady(options, std::string(credentials.status().message()));
  grpc::ChannelArguments arguments;
  if (!options.tls_server_name.empty()) arguments.SetSslTargetNameOverride(options.tls_server_name);
  const auto channel = grpc::CreateCustomChannel(ToString(target), *credentials, arguments);
  const auto stub = inference::GRPCInferenceService::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_REALTIME),
                                    gpr_time_from_millis(static_cast<std::int64_t>(options.timeout_seconds * 1000), GPR_TIMESPAN)));
  context.set_wait_for_ready(false);
  inference::ServerReadyResponse response;
  const grpc::Status status = stub->ServerReady(&context, {}, &response);
  if (status.ok() && response.ready()) return 0;
  return NotReady(options, status.ok() ? "it is not ready" : status.error_message());
}

}  // namespace headroom
