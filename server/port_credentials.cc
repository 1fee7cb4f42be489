#include "server/port_credentials.h"

#include <absl/strings/str_cat.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>

#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "server/bearer_tokens.h"
#include "server/tls_files.h"

namespace headroom {
namespace {

std::string_view View(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

// gRPC's hook for tokens, at the level of its C library: the C++ one exists for TLS alone, and copies all metadata of each call.
void CheckToken(void* state, grpc_auth_context* /*context*/, const grpc_metadata* metadata, std::size_t count,
                grpc_process_auth_metadata_done_cb done, void* user_data) {
  auto& tokens = *static_cast<BearerTokens*>(state);
  std::string_view path;
  const grpc_metadata* authorization = nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view key = View(metadata[i].key);
    if (key == ":path") path = View(metadata[i].value);
    if (key == "authorization") authorization = &metadata[i];
  }
  const bool passes = IsFreeMethod(path) || (authorization != nullptr && tokens.Accepts(View(authorization->value)));
  if (!passes) return done(user_data, nullptr, 0, nullptr, 0, GRPC_STATUS_UNAUTHENTICATED, "a valid bearer token is needed");
  done(user_data, authorization, authorization != nullptr ? 1 : 0, nullptr, 0, GRPC_STATUS_OK, nullptr);
}

grpc_ssl_certificate_config_reload_status FetchIdentity(void* reload, grpc_ssl_server_certificate_config** config) {
  std::optional<TlsIdentity> identity = static_cast<TlsReload*>(reload)->TakeChange();
  if (!identity) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair{identity->key.c_str(), identity->certificate.c_str()};
  // gRPC asserts that there are authorities, also where clients are asked for no certificate.
  const std::string& authorities = identity->client_ca.empty() ? identity->certificate : identity->client_ca;
  *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
  return *config != nullptr ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
}

// gRPC's C++ library cannot replace certificates that are only used when they fit each other, nor check tokens without TLS; its C
// library can do both.
class PortCredentials final : public grpc::ServerCredentials {
 public:
  PortCredentials(std::unique_ptr<TlsReload> reload, bool ask_clients, std::unique_ptr<BearerTokens> tokens)
      : reload_(std::move(reload)), tokens_(std::move(tokens)), credentials_(Create(reload_.get(), ask_clients)) {
    if (tokens_ == nullptr) return;
    grpc_server_credentials_set_auth_metadata_processor(credentials_, {&CheckToken, [](void*) {}, tokens_.get()});
  }
  ~PortCredentials() override { grpc_server_credentials_release(credentials_); }
  PortCredentials(const PortCredentials&) = delete;
  PortCredentials& operator=(const PortCredentials&) = delete;

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  static grpc_server_credentials* Create(TlsReload* reload, bool ask_clients) {
    if (reload == nullptr) return grpc_insecure_server_credentials_create();
    const auto request =
        ask_clients ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(request, &FetchIdentity, reload));
  }

  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  const std::unique_ptr<TlsReload> reload_;
  const std::unique_ptr<BearerTokens> tokens_;
  grpc_server_credentials* const credentials_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakePortCredentials(const PortSecurity& security, Clock& clock) {
  std::unique_ptr<TlsReload> reload;
  std::unique_ptr<BearerTokens> tokens;
  if (!security.tls.certificate.empty()) {
    ASSIGN_OR_RETURN(reload, TlsReload::Open(security.tls, clock));
  }
  if (!security.token_file.empty()) {
    auto opened = BearerTokens::Open(security.token_file, clock);
    if (!opened.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(security.token_flag, " ", std::string(opened.status().message())));
    }
    tokens = *std::move(opened);
  }
  if (reload == nullptr && tokens == nullptr) return grpc::InsecureServerCredentials();
  return std::shared_ptr<grpc::ServerCredentials>(
      std::make_shared<PortCredentials>(std::move(reload), !security.tls.client_ca.empty(), std::move(tokens)));
}

}  // namespace headroom
