#include "bench/load/load_client.h"

#include <grpc/support/time.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "bench/load/realtime.h"

namespace headroom {
namespace {

constexpr const char* kMethod = "/inference.GRPCInferenceService/ModelInfer";
constexpr std::int64_t kConnectMilliseconds = 30'000;
constexpr std::int64_t kNoAnswerMilliseconds = 300'000;
constexpr Duration kHeadStart = std::chrono::milliseconds(20);  // in which an open loop's threads begin to wait
constexpr int kSenderPriority = 20;
constexpr int kReceiverPriority = 10;

const char* NameOf(grpc::StatusCode code) {
  constexpr const char* kNames[] = {"OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
                                    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
                                    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
                                    "DATA_LOSS", "UNAUTHENTICATED"};
  const auto i = static_cast<std::size_t>(code);
  return i < std::size(kNames) ? kNames[i] : "UNKNOWN";
}

CallEnd EndOf(grpc::StatusCode code, bool has_deadline) {
  switch (code) {
    case grpc::StatusCode::OK: return CallEnd::kAnswered;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::UNAVAILABLE: return CallEnd::kRefused;
    case grpc::StatusCode::DEADLINE_EXCEEDED: return has_deadline ? CallEnd::kRefused : CallEnd::kFault;
    default: return CallEnd::kFault;
  }
}

struct Call {
  grpc::ClientContext context;
  grpc::ByteBuffer reply;
  grpc::Status status;
  TimePoint intended;
  std::int64_t tokens = 0;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
};

// One connection's part of a round. Messages go and come as bytes: a client that takes them apart takes the server's processors.
class Lane {
 public:
  Lane(const std::shared_ptr<grpc::Channel>& channel, std::int64_t deadline_ms, TimePoint start)
      : stub_(channel), deadline_ms_(deadline_ms), start_(start) {}

  // By one thread at a time.
  void Send(const ScheduledCall& scheduled, TimePoint intended) {
    auto* const call = new Call;
    call->intended = intended;
    call->tokens = scheduled.tokens;
    call->context.set_deadline(gpr_time_from_millis(deadline_ms_ > 0 ? deadline_ms_ : kNoAnswerMilliseconds, GPR_TIMESPAN));
    call->reader = stub_.PrepareUnaryCall(&call->context, kMethod, scheduled.message, &queue_);
    call->reader->StartCall();
    call->reader->Finish(&call->reply, &call->status, call);
  }

  // Waits for the next call to end and counts it. False when the lane has been closed and none is left. By one thread.
  bool TakeAnswer() {
    void* tag = nullptr;
    bool ok = false;
    if (!queue_.Next(&tag, &ok)) return false;
    const TimePoint now = RealClock().Now();
    const std::unique_ptr<Call> call(static_cast<Call*>(tag));
    const CallEnd end = EndOf(call->status.error_code(), deadline_ms_ > 0);
    figures_.CountEnd(end, NameOf(call->status.error_code()), call->status.error_message());
    if (end == CallEnd::kAnswered) {
      figures_.latency.Record(now - call->intended);
      figures_.answered_tokens += call->tokens;
    }
    figures_.took = now - start_;
    return true;
  }

  // No more calls will be sent.
  void Close() { queue_.Shutdown(); }

  // When no thread uses the lane any more, or by the one that does.
  RoundFigures& figures() { return figures_; }

 private:
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  const std::int64_t deadline_ms_;
  const TimePoint start_;
  RoundFigures figures_;
};

std::vector<std::unique_ptr<Lane>> LanesOf(const std::vector<std::shared_ptr<grpc::Channel>>& channels, std::int64_t deadline_ms,
                                           TimePoint start) {
  std::vector<std::unique_ptr<Lane>> lanes;
  for (const auto& channel : channels) lanes.push_back(std::make_unique<Lane>(channel, deadline_ms, start));
  return lanes;
}

}  // namespace

LoadClient::LoadClient(const std::string& address, const LoadSettings& settings) : settings_(settings) {
  for (int i = 0; i < settings.connections; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // else all channels share one connection
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    channels_.push_back(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }
}

absl::Status LoadClient::Connect() {
  for (const auto& channel : channels_) {
    if (!channel->WaitForConnected(gpr_time_from_millis(kConnectMilliseconds, GPR_TIMESPAN))) {
      return absl::UnavailableError("no connection within half a minute");
    }
  }
  return absl::OkStatus();
}

RoundFigures LoadClient::RunOpenLoop(std::span<const ScheduledCall> calls, Scheduling& scheduling) {
  const TimePoint start = RealClock().Now() + kHeadStart;
  const auto lanes = LanesOf(channels_, settings_.deadline_ms, start);
  std::atomic<bool> receivers_first = settings_.realtime;
  std::vector<std::thread> receivers;
  for (const auto& lane : lanes) {
    receivers.emplace_back([&lane, &receivers_first] {
      if (receivers_first && !ScheduleFirst(kReceiverPriority)) receivers_first = false;
      while (lane->TakeAnswer()) continue;
    });
  }
  RoundFigures all;
  std::thread sender([&] {
    scheduling.sender_first = settings_.realtime && ScheduleFirst(kSenderPriority);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const TimePoint intended = start + calls[i].at;
      PauseUntil(intended);
      all.lag.Record(RealClock().Now() - intended);
      lanes[i % lanes.size()]->Send(calls[i], intended);
      ++all.sent;
    }
  });
  sender.join();
  for (const auto& lane : lanes) lane->Close();
  for (std::thread& receiver : receivers) receiver.join();
  scheduling.receivers_first = receivers_first;
  for (const auto& lane : lanes) all.MergeOverlapping(lane->figures());
  return all;
}

RoundFigures LoadClient::RunClosedLoop(std::span<const ScheduledCall> calls, const ClosedLoop& loop) {
  const TimePoint start = RealClock().Now();
  const auto lanes = LanesOf(channels_, settings_.deadline_ms, start);
  std::atomic<std::int64_t> next{0};
  const auto send_next = [&](Lane& lane) {
    const TimePoint now = RealClock().Now();
    if (loop.calls == 0 && now - start >= loop.lasts) return false;
    const std::int64_t number = next.fetch_add(1);
    if (loop.calls > 0 && number >= loop.calls) return false;
    lane.Send(calls[static_cast<std::size_t>(number) % calls.size()], now);
    ++lane.figures().sent;
    return true;
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const auto count = static_cast<std::int64_t>(lanes.size());
    const std::int64_t share = loop.in_flight / count + (static_cast<std::int64_t>(i) < loop.in_flight % count ? 1 : 0);
    threads.emplace_back([&lane = *lanes[i], &send_next, share] {
      std::int64_t under_way = 0;
      while (under_way < share && send_next(lane)) ++under_way;
      while (under_way > 0 && lane.TakeAnswer()) {
        if (!send_next(lane)) --under_way;
      }
      lane.Close();
      while (lane.TakeAnswer()) continue;
    });
  }
  for (std::thread& thread : threads) thread.join();
  RoundFigures all;
  for (const auto& lane : lanes) all.MergeOverlapping(lane->figures());
  all.faults += all.refused;
  all.refused = 0;
  return all;
}

}  // namespace headroom
