#include "server/grpc_listener.h"

#include <absl/strings/str_cat.h>
#include <grpc/grpc.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "proto/open_inference.grpc.pb.h"

namespace headroom {
namespace {

constexpr int kShutdownGraceMs = 300;
// gRPC's Shutdown answers calls that cross with its GOAWAY with CANCELLED, which no client tries again. Those that watch health
// have left by then, those that do not have had UNAVAILABLE from us meanwhile.
constexpr Duration kNotice = std::chrono::milliseconds(100);
// Descriptors that connections leave alone: model files, the log, the HTTP port, gRPC's own.
constexpr int kReservedDescriptors = 128;
constexpr int kWithoutLimit = std::numeric_limits<int>::max();

int Milliseconds(int seconds) { return seconds * 1000; }
int MillisecondsOrNever(int seconds) { return seconds == 0 ? kWithoutLimit : Milliseconds(seconds); }

void Limit(const WireLimits& wire, grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(wire.max_metadata_size.count));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, wire.max_streams);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(wire.handshake_seconds));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(wire.keepalive_seconds));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(wire.keepalive_timeout_seconds));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, Milliseconds(wire.min_ping_seconds));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, wire.max_ping_strikes);
  // A connection without calls is to be asked as often as one with calls: gRPC would stop after two pings.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, MillisecondsOrNever(wire.connection_age_seconds));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, MillisecondsOrNever(wire.connection_grace_seconds));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, MillisecondsOrNever(wire.connection_idle_seconds));
  if (wire.stream_window > Bytes{0}) {
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, static_cast<int>(wire.stream_window.count));
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  }
  // The table of earlier heads of calls is left as it is by default. Without one, gRPC 1.51 wants to be told so in each
  // connection's first head, which HAProxy 2.6 does not: every call of its would fail. What the table is a danger for
  // (CVE-2023-32731: a head that is refused for its size) is met by max_metadata_size, which is above what proxies let through.
  // What gRPC keeps of each connection and call for its debugging pages, which are not served.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 0);
  // gRPC would expand a message without a bound, and measure it afterwards: Inflate does it instead.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, wire.compression);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Start(const ListenerSettings& settings, grpc::Service& service,
                                                                  Clock& clock) {
  grpc::EnableDefaultHealthCheckService(true);
  std::unique_ptr<GrpcListener> listener(new GrpcListener);
  listener->host_ = settings.address.host;
  ASSIGN_OR_RETURN(listener->credentials_, MakePortCredentials(settings.security, clock));
  absl::StatusOr<ListeningSockets> sockets = ListeningSockets::Open(settings.address);
  if (!sockets.ok()) {
    return absl::UnavailableError(absl::StrCat(settings.flag, " ", ToString(settings.address),
                                               " cannot be listened on: ", std::string(sockets.status().message())));
  }
  grpc::ServerBuilder builder;
  listener->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, listener->credentials_);
  builder.RegisterService(&service);
  builder.SetMaxReceiveMessageSize(static_cast<int>(settings.limits.max_message_size.count));
  builder.SetMaxSendMessageSize(static_cast<int>(settings.limits.max_message_size.count));
  builder.SetResourceQuota(listener->buffers_);
  Limit(settings.wire, builder);
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat(settings.flag, " ", ToString(settings.address), ": gRPC does not start there"));
  }
  listener->SetServing(false);
  const int descriptors = RaiseDescriptorLimit(settings.wire.max_connections + 2 * kReservedDescriptors);
  listener->gate_ = std::make_unique<ConnectionGate>(
      ConnectionGate::Parts{*std::move(sockets), settings.wire.max_connections,
                            // Half, where there are not even so many.
                            std::max(descriptors / 2, descriptors - kReservedDescriptors),
                            [&acceptor = *listener->acceptor_](int listening_socket, int connection) {
                              grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters accepted;
                              accepted.listener_fd = listening_socket;
                              accepted.fd = connection;
                              acceptor.HandleNewConnection(&accepted);
                            }});
  return listener;
}

void GrpcListener::SendAway() {
  gate_->StopAccepting();
  // On a thread of its own: Shutdown returns when the last call has gone.
  sending_away_ = std::jthread([this] {
    {
      const TimePoint noticed = After(RealClock().Now(), kNotice);
      MutexLock lock(mutex_);
      while (RealClock().Now() < noticed) RealClock().WaitUntil(mutex_, ended_, noticed);
    }
    server_->Shutdown(gpr_inf_future(GPR_CLOCK_MONOTONIC));
    MutexLock lock(mutex_);
    shut_down_ = true;
    ended_.NotifyAll();
  });
}

void GrpcListener::EndCalls() {
  const TimePoint patience = After(RealClock().Now(), std::chrono::milliseconds(kShutdownGraceMs) + kNotice);
  MutexLock lock(mutex_);
  while (!shut_down_ && RealClock().Now() < patience) RealClock().WaitUntil(mutex_, ended_, patience);
  if (!shut_down_) grpc_server_cancel_all_calls(server_->c_server());
}

GrpcListener::~GrpcListener() {
  gate_.reset();
  if (server_ == nullptr) return;
  if (sending_away_.joinable()) {
    EndCalls();
    sending_away_.join();
    server_->Wait();
    return;
  }
  // Streams such as health's Watch stay open for as long as the client likes.
  server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(kShutdownGraceMs, GPR_TIMESPAN)));
  server_->Wait();
}

void GrpcListener::LimitBuffers(Bytes limit) { buffers_.Resize(static_cast<std::size_t>(limit.count)); }

Address GrpcListener::address() const { return {host_, gate_->port()}; }

void GrpcListener::SetServing(bool serving) {
  auto* const health = server_->GetHealthCheckService();
  health->SetServingStatus(serving);
  health->SetServingStatus(inference::GRPCInferenceService::service_full_name(), serving);
}

}  // namespace headroom
