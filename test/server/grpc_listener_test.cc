#include "server/grpc_listener.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/open_inference.grpc.pb.h"
#include "proto/open_inference.pb.h"
#include "server/bearer_tokens.h"
#include "test/fakes/manual_clock.h"
#include "test/server/scratch_folder.h"
#include "test/server/test_certificates.h"

namespace headroom {
namespace {

constexpr const char* kToken = "a-token-for-tests-0123456789";

// Answers every call, UNIMPLEMENTED but for one: what is tested is whether a call gets there.
class Service final : public inference::GRPCInferenceService::Service {
 public:
  grpc::Status ServerMetadata(grpc::ServerContext* context, const inference::ServerMetadataRequest* /*request*/,
                              inference::ServerMetadataResponse* response) override {
    response->set_name(context->client_metadata().count("authorization") == 0 ? "no secrets" : "secrets");
    return grpc::Status::OK;
  }
};

absl::StatusOr<std::unique_ptr<GrpcListener>> TryToStart(Service& service, Clock& clock, const PortSecurity& security,
                                                         const WireLimits& wire = {}) {
  ListenerSettings settings;
  settings.address = {"127.0.0.1", 0};
  settings.wire = wire;
  settings.security = security;
  return GrpcListener::Start(settings, service, clock);
}

std::unique_ptr<GrpcListener> Start(Service& service, Clock& clock, const PortSecurity& security, const WireLimits& wire = {}) {
  auto listener = TryToStart(service, clock, security, wire);
  INFO(listener.status());
  REQUIRE(listener.ok());
  return *std::move(listener);
}

// A channel of its own connection.
std::shared_ptr<grpc::Channel> Connect(const GrpcListener& listener, const std::shared_ptr<grpc::ChannelCredentials>& credentials =
                                                                         grpc::InsecureChannelCredentials()) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(ToString(listener.address()), credentials, arguments);
}

// How a call of any method ends, with an empty message.
grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method, const std::string& authorization = "") {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  if (!authorization.empty()) context.AddMetadata("authorization", authorization);
  grpc::CompletionQueue queue;
  const auto stream = stub.PrepareCall(&context, method, &queue);
  void* tag = nullptr;
  bool ok = false;
  stream->StartCall(nullptr);
  queue.Next(&tag, &ok);
  if (ok) {
    const grpc::Slice nothing;
    stream->WriteLast(grpc::ByteBuffer(&nothing, 1), {}, nullptr);
    queue.Next(&tag, &ok);
    grpc::ByteBuffer answer;
    do {
      stream->Read(&answer, nullptr);
      queue.Next(&tag, &ok);
    } while (ok);
  }
  grpc::Status status;
  stream->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  return status;
}

std::vector<std::string> MethodsOf(const google::protobuf::FileDescriptor& file) {
  std::vector<std::string> methods;
  for (int s = 0; s < file.service_count(); ++s) {
    for (int m = 0; m < file.service(s)->method_count(); ++m) {
      methods.push_back("/" + file.service(s)->full_name() + "/" + file.service(s)->method(m)->name());
    }
  }
  return methods;
}

TEST_CASE("every method of the service needs a token, but those that tell whether the server lives", "[port_security]") {
  const ScratchFolder folder;
  folder.Write("tokens", kToken);
  ManualClock clock;
  Service service;
  const auto listener = Start(service, clock, {{}, folder.PathOf("tokens")});
  const auto channel = Connect(*listener);
  const std::vector<std::string> methods = MethodsOf(*inference::ModelInferRequest::descriptor()->file());
  REQUIRE(methods.size() >= 11);
  int free = 0;
  for (const std::string& method : methods) {
    CAPTURE(method);
    const auto without = Call(channel, method).error_code();
    const auto wrong = Call(channel, method, "Bearer " + std::string(kToken) + "x").error_code();
    const auto with = Call(channel, method, "Bearer " + std::string(kToken)).error_code();
    CHECK(with != grpc::StatusCode::UNAUTHENTICATED);
    CHECK(without == (IsFreeMethod(method) ? with : grpc::StatusCode::UNAUTHENTICATED));
    CHECK(wrong == without);
    free += static_cast<int>(IsFreeMethod(method));
  }
  CHECK(free == 2);
  // Services that gRPC adds, and methods that there are none of.
  CHECK(Call(channel, "/grpc.health.v1.Health/Check").error_code() == grpc::StatusCode::OK);
  for (const char* const other : {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/no.Service/Method", "/",
                                  "/inference.GRPCInferenceService/serverlive", "/inference.GRPCInferenceService/ServerLive/"}) {
    CAPTURE(other);
    CHECK(Call(channel, other).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  }
}

TEST_CASE("a token is not shown to the service", "[port_security]") {
  const ScratchFolder folder;
  folder.Write("tokens", kToken);
  ManualClock clock;
  Service service;
  const auto listener = Start(service, clock, {{}, folder.PathOf("tokens")});
  const auto stub = inference::GRPCInferenceService::NewStub(Connect(*listener));
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer " + std::string(kToken));
  inference::ServerMetadataResponse response;
  REQUIRE(stub->ServerMetadata(&context, {}, &response).ok());
  CHECK(response.name() == "no secrets");
}

std::shared_ptr<grpc::ChannelCredentials> Trusting(const char* authority, const char* certificate = "", const char* key = "") {
  return grpc::SslCredentials({authority, key, certificate});
}

bool Answers(const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = inference::GRPCInferenceService::NewStub(channel);
  grpc::ClientContext context;
  inference::ServerMetadataResponse response;
  const grpc::Status status = stub->ServerMetadata(&context, {}, &response);
  UNSCOPED_INFO(status.error_message());
  return status.ok();
}

TEST_CASE("certificates are replaced while connections live on", "[port_security]") {
  const ScratchFolder folder;
  folder.Write("crt", kCertificate);
  folder.Write("key", kKey);
  ManualClock clock;
  Service service;
  const auto listener = Start(service, clock, {{folder.PathOf("crt"), folder.PathOf("key"), ""}, ""});
  const auto old_connection = Connect(*listener, Trusting(kCertificate));
  CHECK(Answers(old_connection));
  CHECK_FALSE(Answers(Connect(*listener, Trusting(kOtherCertificate))));
  CHECK_FALSE(Answers(Connect(*listener)));  // plain

  // Half a change: what was goes on.
  folder.Write("crt", kOtherCertificate);
  clock.Advance(std::chrono::seconds(2));
  CHECK(Answers(Connect(*listener, Trusting(kCertificate))));
  folder.Write("key", kOtherKey);
  clock.Advance(std::chrono::seconds(2));
  CHECK(Answers(Connect(*listener, Trusting(kOtherCertificate))));
  CHECK_FALSE(Answers(Connect(*listener, Trusting(kCertificate))));
  CHECK(Answers(old_connection));
}

TEST_CASE("with an authority for clients, those without a certificate of it are not served", "[port_security]") {
  const ScratchFolder folder;
  folder.Write("crt", kCertificate);
  folder.Write("key", kKey);
  folder.Write("ca", kOtherCertificate);
  ManualClock clock;
  Service service;
  const auto listener = Start(service, clock, {{folder.PathOf("crt"), folder.PathOf("key"), folder.PathOf("ca")}, ""});
  CHECK(Answers(Connect(*listener, Trusting(kCertificate, kOtherCertificate, kOtherKey))));
  CHECK_FALSE(Answers(Connect(*listener, Trusting(kCertificate, kCertificate, kKey))));
  CHECK_FALSE(Answers(Connect(*listener, Trusting(kCertificate))));
}

TEST_CASE("a port that cannot be protected does not open", "[port_security]") {
  const ScratchFolder folder;
  ManualClock clock;
  Service service;
  const auto fault = [&](const PortSecurity& security) {
    return std::string(TryToStart(service, clock, security).status().message());
  };
  const std::string none = folder.PathOf("none");
  CHECK(fault({{none, none, ""}, ""}) == "--tls-certificate " + none + " cannot be read: No such file or directory");
  CHECK(fault({{}, none}) == "--token-file " + none + " cannot be read: No such file or directory");
  CHECK(fault({{}, none, "--management-token-file"}) ==
        "--management-token-file " + none + " cannot be read: No such file or directory");
}

TEST_CASE("a connection beyond the limit is refused, and those within it live", "[grpc_listener]") {
  ManualClock clock;
  Service service;
  WireLimits wire;
  wire.max_connections = 1;
  const auto listener = Start(service, clock, {}, wire);
  const auto only = Connect(*listener);
  CHECK(Answers(only));
  CHECK(Call(Connect(*listener), "/inference.GRPCInferenceService/ServerMetadata").error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(listener->refused_connections() >= 1);
  CHECK(listener->connections() == 1);
  CHECK(Answers(only));
}

TEST_CASE("metadata beyond the limit is refused", "[grpc_listener]") {
  ManualClock clock;
  Service service;
  WireLimits wire;
  wire.max_metadata_size = KiB(4);
  const auto listener = Start(service, clock, {}, wire);
  const auto channel = Connect(*listener);
  CHECK(Answers(channel));
  CHECK(Call(channel, "/inference.GRPCInferenceService/ServerLive", std::string(5000, 'x')).error_code() ==
        grpc::StatusCode::RESOURCE_EXHAUSTED);
  // gRPC closes the connection with it.
  CHECK(Answers(Connect(*listener)));
}

}  // namespace
}  // namespace headroom
