// What became of the calls that one server was sent in one round.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"
#include "bench/figures/latency_histogram.h"

namespace headroom {

// How a call ended. A refusal is what a server may say to a good call: that it is full, that it drains, that the call's own
// deadline has passed.
enum class CallEnd { kAnswered, kRefused, kFault };

struct RoundFigures {
  LatencyHistogram latency;  // of answered calls, from the time at which they were to be sent
  LatencyHistogram lag;      // of the sender behind that time
  std::int64_t sent = 0;
  std::int64_t answered = 0;
  std::int64_t refused = 0;
  std::int64_t faults = 0;
  std::int64_t answered_tokens = 0;
  std::map<std::string, std::int64_t> by_status;
  std::string first_words;  // of the first call that was not answered
  Duration took{0};         // from the start until the last call had ended

  void CountEnd(CallEnd end, const std::string& status, const std::string& words);
  // Adds another round, or what another thread has seen of the same one, whose times then overlap.
  void MergeRound(const RoundFigures& other);
  void MergeOverlapping(const RoundFigures& other);

  double answered_per_second() const { return took > Duration::zero() ? static_cast<double>(answered) / Seconds(took) : 0; }
};

}  // namespace headroom
