// Times in a fixed number of buckets whose width grows with the time: how much memory it takes, and how exact it is, do not depend
// on how many times are recorded.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace headroom {

// From 0 to some 18 minutes, told with an error of less than 0.8 %; what is beyond counts as the longest that can be told, and
// max() tells it exactly. Not thread-safe.
class LatencyHistogram {
 public:
  LatencyHistogram();

  // A time below zero counts as zero.
  void Record(Duration time);
  void Merge(const LatencyHistogram& other);

  std::int64_t count() const { return count_; }
  // Exact; 0 where nothing was recorded.
  Duration max() const { return max_; }
  Duration mean() const;
  // A time that at least `share` (0 to 1) of all do not exceed, never told too low, and at most 0.8 % above the least such time. 0
  // where nothing was recorded.
  Duration Quantile(double share) const;

 private:
  std::vector<std::int64_t> buckets_;
  std::int64_t count_ = 0;
  Duration max_{0};
  double sum_ = 0;  // nanoseconds
};

}  // namespace headroom
