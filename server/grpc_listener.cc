#include "server/grpc_listener.h"

#include <absl/strings/str_cat.h>
#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/sync.h"
#include "proto/open_inference.grpc.pb.h"

namespace headroom {
namespace {

constexpr int kShutdownGraceMs = 300;
// gRPC's Shutdown answers calls that cross with its GOAWAY with CANCELLED, which no client tries again. Those that watch health
// have left by then, those that do not have had UNAVAILABLE from us meanwhile.
constexpr Duration kNotice = std::chrono::milliseconds(100);
// Reflection alone is served by threads, one an open stream: enough for people with their tools, and no more for anybody.
constexpr int kMostThreads = 8;
// Descriptors that connections leave alone: model files, the log, the HTTP port, gRPC's own.
constexpr int kReservedDescriptors = 128;
// Of the four that gRPC fills in a turn.
constexpr int kReadChunk = 32 << 10;
// Calls that are under way, counted from their first bytes to their end, before those who read the wire are held up.
constexpr std::int64_t kMostLiveCalls = 4096;
constexpr Duration kHoldUp = std::chrono::milliseconds(1);
// gRPC tells of a deadline as of a cancellation, a little early by our clock where the client is near.
constexpr int kDeadlineSlackMs = 100;
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
  // With the window that gRPC 1.51 fits to the connection's bandwidth, a stream whose client sends far ahead of what is read was
  // reset now and then while its first data came in (PROTOCOL_ERROR, from the server's own reading of frames; why was not found).
  // Without it none was seen to be. The window is then HTTP/2's own 64 KiB, and grows by what a message that is read still lacks.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  if (wire.stream_window > Bytes{0}) {
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, static_cast<int>(wire.stream_window.count));
  }
  // What a connection has sent is worked off in one go: with gRPC's 4 MiB a flood of small frames is tens of thousands of calls at
  // once, in memory and before anybody else's turn.
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadChunk);
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

// Whether a call was given up by its client, and not for its deadline: that is nobody's fault but the server's.
bool WasAbandoned(const grpc::CallbackServerContext& context) {
  if (!context.IsCancelled()) return false;
  const gpr_timespec deadline = context.raw_deadline();
  const gpr_timespec soon = gpr_time_add(gpr_now(deadline.clock_type), gpr_time_from_millis(kDeadlineSlackMs, GPR_TIMESPAN));
  return gpr_time_cmp(deadline, soon) > 0;
}

}  // namespace

// Where every call of every service begins and ends.
class GrpcListener::CallWatch final : public grpc::ContextAllocator {
 public:
  CallWatch(GrpcListener& listener, Clock& clock) : listener_(listener), clock_(clock) {}

  grpc::CallbackServerContext* NewCallbackServerContext() override {
    AwaitTurn();
    return new grpc::CallbackServerContext;
  }
  grpc::GenericCallbackServerContext* NewGenericCallbackServerContext() override { return new grpc::GenericCallbackServerContext; }
  void Release(grpc::CallbackServerContext* context) override {
    if (WasAbandoned(*context)) listener_.CallWasAbandoned(context->peer(), clock_.Now());
    delete context;
    live_.fetch_sub(1, std::memory_order_relaxed);
  }
  void Release(grpc::GenericCallbackServerContext* context) override { delete context; }

 private:
  // Calls that are begun faster than they are ended pile up in gRPC, several KiB each, without a bound. Whoever reads them from the
  // wire is held up for a moment a call, so that the wire fills instead. Never for long: what ends calls may need this thread.
  void AwaitTurn() {
    if (live_.fetch_add(1, std::memory_order_relaxed) < kMostLiveCalls) return;
    Mutex mutex;
    CondVar nobody;
    MutexLock lock(mutex);
    clock_.WaitUntil(mutex, nobody, After(clock_.Now(), kHoldUp));
  }

  std::atomic<std::int64_t> live_ = 0;
  GrpcListener& listener_;
  Clock& clock_;
};

GrpcListener::GrpcListener(const ListenerSettings& settings)
    : host_(settings.address.host), abandoned_(settings.wire.max_abandoned_per_second) {}

void GrpcListener::CallWasAbandoned(const std::string& peer, TimePoint now) {
  if (!abandoned_.Note(peer, now)) return;
  Log(LogLevel::kWarning, "a connection was closed: it gives up its calls too often", {{"peer", peer}});
  gate_->ShutDown(peer);
}

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Start(const ListenerSettings& settings, grpc::Service& service,
                                                                  Clock& clock) {
  grpc::EnableDefaultHealthCheckService(true);
  // Asked for by name: the library's own initializer is dropped where nothing refers to it.
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  std::unique_ptr<GrpcListener> listener(new GrpcListener(settings));
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
  listener->buffers_.SetMaxThreads(kMostThreads);
  builder.SetResourceQuota(listener->buffers_);
  Limit(settings.wire, builder);
  builder.SetContextAllocator(std::make_unique<CallWatch>(*listener, clock));
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
  if (server_ == nullptr) return;
  if (sending_away_.joinable()) {
    EndCalls();
    sending_away_.join();
    server_->Wait();
    return;
  }
  if (gate_ != nullptr) gate_->StopAccepting();
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
