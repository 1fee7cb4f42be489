// How a gRPC port is protected: plain or TLS, with or without tokens. The one door that every call of every service passes, before
// its method is looked up and its message is read.
#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "base/clock.h"
#include "server/options.h"

namespace headroom {

struct PortSecurity {
  TlsFiles tls;            // no certificate: plain
  std::string token_file;  // empty: no token is asked for
  const char* token_flag = "--token-file";
};

// Calls without a token that is asked for are answered UNAUTHENTICATED, whatever they call but IsFreeMethod; the tokens that they
// carry are not shown to the services. FAILED_PRECONDITION naming flag, file and fault. `clock` outlives the credentials.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakePortCredentials(const PortSecurity& security, Clock& clock);

}  // namespace headroom
