// Which batches run on a device, and for how long they may be expected to go on.
#pragma once

#include <set>

#include "base/clock.h"
#include "base/sync.h"

namespace headroom {

class RunningBatches;

// A batch under way; counts itself out when it is destroyed. Movable.
class RunningBatch {
 public:
  RunningBatch(RunningBatch&& other) noexcept;
  RunningBatch& operator=(RunningBatch&&) = delete;
  ~RunningBatch();

 private:
  friend class RunningBatches;
  RunningBatch(RunningBatches& all, std::multiset<TimePoint>::iterator place) : all_(&all), place_(place) {}

  RunningBatches* all_;
  const std::multiset<TimePoint>::iterator place_;
};

// Thread-safe.
class RunningBatches {
 public:
  // A batch begins that is expected to have ended by `until`.
  RunningBatch Begin(TimePoint until) EXCLUDES(mutex_);

  int count() const EXCLUDES(mutex_);
  // What is left of all of them together at `now`; one that is late counts as about to end.
  Duration Left(TimePoint now) const EXCLUDES(mutex_);

 private:
  friend class RunningBatch;
  mutable Mutex mutex_;
  std::multiset<TimePoint> ends_ GUARDED_BY(mutex_);
};

}  // namespace headroom
