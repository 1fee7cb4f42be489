// Sends prepared messages to one server, by an open or a closed loop, and tells what became of them.
#pragma once

#include <absl/status/status.h>
#include <grpcpp/channel.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/figures/round_figures.h"

namespace headroom {

struct ScheduledCall {
  Duration at{0};           // from the start of the round; ascending
  std::int64_t tokens = 0;  // of its row
  grpc::ByteBuffer message;
};

struct LoadSettings {
  int connections = 2;  // each with a thread that takes its answers
  // Of each call, in ms. 0: none; a call that is not answered within five minutes is then a fault.
  std::int64_t deadline_ms = 0;
  bool realtime = true;  // in an open loop the sender and the threads that take answers are scheduled SCHED_FIFO, where allowed
};

// What the system allowed in an open loop.
struct Scheduling {
  bool sender_first = false;
  bool receivers_first = false;
};

class LoadClient {
 public:
  LoadClient(const std::string& address, const LoadSettings& settings);

  // Waits until every connection is there. UNAVAILABLE after half a minute.
  absl::Status Connect();
  const std::shared_ptr<grpc::Channel>& channel() const { return channels_.front(); }

  // Sends each call at its time, whatever has become of those before, and waits for all answers. A latency counts from the time at
  // which the call was to be sent.
  RoundFigures RunOpenLoop(std::span<const ScheduledCall> calls, Scheduling& scheduling);

  struct ClosedLoop {
    std::int64_t in_flight = 1;  // calls; a new one is sent as soon as one has ended
    std::int64_t calls = 0;      // in all, or 0: until `lasts` is over
    Duration lasts{0};
  };
  // `calls` are sent in their order, from the first one again when they are used up; their times do not matter. A call's latency
  // counts from its sending, and one that is refused is a fault.
  RoundFigures RunClosedLoop(std::span<const ScheduledCall> calls, const ClosedLoop& loop);

 private:
  const LoadSettings settings_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
};

}  // namespace headroom
