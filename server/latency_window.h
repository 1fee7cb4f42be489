// The 99th percentile of what was recorded lately.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/clock.h"

namespace headroom {

// Record may be called on any thread and costs one increment; Percentile belongs to one thread, which calls it at regular times.
class LatencyWindow {
 public:
  // Counts this long ago are the oldest that matter, in calls of Percentile: ten seconds of looks each half second.
  static constexpr std::size_t kLooks = 20;
  // Fewer tell nothing of one in a hundred.
  static constexpr std::int64_t kLeast = 20;

  void Record(Duration took);

  // What 99 % of those recorded within the last kLooks calls were no longer than, at most a fifth too high; none where there were
  // fewer than kLeast.
  std::optional<Duration> Percentile();

 private:
  // Upper bounds ascend by a fifth each from 100 µs on; the last one has no end.
  static constexpr std::size_t kBuckets = 96;
  using Counts = std::array<std::int64_t, kBuckets>;
  static const std::array<Duration, kBuckets>& Bounds();

  std::array<std::atomic<std::int64_t>, kBuckets> counts_{};
  std::deque<Counts> before_ = {Counts{}};  // what counts_ were at the last looks, the oldest first
};

}  // namespace headroom
