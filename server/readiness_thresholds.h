// Whether a server that works well enough to answer should still be sent less for a while: readiness by thresholds.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"

namespace headroom {

// All off by default: where every replica passes a threshold at once, as under an overload of the whole, every one would say that
// it is not ready, and a balancer would have nowhere to send anything.
struct ReadinessOptions {
  double min_memory_headroom = 0;       // of the budget of the device that is best off, the share that is free, below 1; 0: off
  std::int64_t max_queue_delay_ms = 0;  // age of the oldest waiting row; 0: off
  std::int64_t max_latency_ms = 0;      // 99th percentile over the last ten seconds; 0: off
};

// What is looked at.
struct ReadinessFigures {
  std::optional<double> memory_headroom;  // none where no device tells
  Duration oldest_wait{0};
  std::optional<Duration> latency;  // none where too few requests were answered to tell
};

enum class StrainKind { kMemory, kQueueDelay, kLatency };
inline constexpr std::size_t kStrainKinds = 3;
const char* NameOf(StrainKind kind);  // "memory", "queue_delay", "latency": label values

// What was made of the looks so far.
class ReadinessThresholds {
 public:
  // So many looks in a row must be beyond a threshold before it counts: one may fall on a moment that means nothing.
  static constexpr int kLooksToEnter = 2;
  // So many must be well within it before it counts no more, so that a balancer is not sent back and forth.
  static constexpr int kLooksToLeave = 10;
  // "Well within": four fifths of a bound from above, five quarters of one from below, or all there is.
  static constexpr double kClear = 0.8;

  explicit ReadinessThresholds(const ReadinessOptions& options) : options_(options) {}

  // One look. A figure that is not there is neither beyond a threshold nor within it, but for a latency: where nobody calls, none
  // is too long.
  void Step(const ReadinessFigures& figures);

  bool strained(StrainKind kind) const { return states_[static_cast<std::size_t>(kind)].strained; }
  // What keeps it from being ready, with the figures of the last look, for a person; empty where nothing does.
  std::string Reason() const;

 private:
  struct State {
    bool strained = false;
    int looks = 0;       // in a row that speak against `strained`
    std::string figure;  // of the last look
  };
  enum class Look { kBeyond, kBetween, kClear };
  static void Count(State& state, Look look);

  Look LookAtMemory(const ReadinessFigures& figures, std::string& figure) const;
  Look LookAtBound(Duration value, std::int64_t bound_ms, std::string& figure) const;

  const ReadinessOptions options_;
  std::array<State, kStrainKinds> states_;
};

}  // namespace headroom
