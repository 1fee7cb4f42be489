#include "server/grpc_listener.h"

#include <absl/strings/str_cat.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

namespace headroom {
namespace {

constexpr int kShutdownGraceMs = 300;
// Common clients ping every 10 s, with or without calls; gRPC's own default takes that for abuse and closes the connection.
constexpr int kLeastPingIntervalMs = 5000;
// Reflection alone is served by threads, one an open stream: enough for people with their tools, and no more for anybody.
constexpr int kMostThreads = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Start(const Address& address, const RequestLimits& limits,
                                                                  InferenceService& service) {
  grpc::EnableDefaultHealthCheckService(true);
  // Asked for by name: the library's own initializer is dropped where nothing refers to it.
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  std::unique_ptr<GrpcListener> listener(new GrpcListener);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(ToString(address), grpc::InsecureServerCredentials(), &listener->port_);
  builder.RegisterService(&service);
  builder.SetMaxReceiveMessageSize(static_cast<int>(limits.max_message_size.count));
  builder.SetMaxSendMessageSize(static_cast<int>(limits.max_message_size.count));
  listener->buffers_.SetMaxThreads(kMostThreads);
  builder.SetResourceQuota(listener->buffers_);
  // Two servers on one port would share its connections; a port in use is a mistake to be told.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // With the window that gRPC 1.51 fits to the connection's bandwidth, a stream whose client sends far ahead of what is read was
  // reset now and then while its first data came in (PROTOCOL_ERROR, from the server's own reading of frames; why was not found).
  // Without it none was seen to be. The window is then HTTP/2's own 64 KiB, and grows by what a message that is read still lacks.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kLeastPingIntervalMs);
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr || listener->port_ == 0) {
    return absl::UnavailableError(absl::StrCat("--grpc-address ", ToString(address),
                                               " cannot be listened on: is the port in use or the address another machine's?"));
  }
  listener->SetServing(false);
  return listener;
}

GrpcListener::~GrpcListener() {
  if (server_ == nullptr) return;
  // Streams such as health's Watch stay open for as long as the client likes.
  server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(kShutdownGraceMs, GPR_TIMESPAN)));
  server_->Wait();
}

void GrpcListener::LimitBuffers(Bytes limit) { buffers_.Resize(static_cast<std::size_t>(limit.count)); }

void GrpcListener::SetServing(bool serving) {
  auto* const health = server_->GetHealthCheckService();
  health->SetServingStatus(serving);
  health->SetServingStatus(inference::GRPCInferenceService::service_full_name(), serving);
}

}  // namespace headroom
