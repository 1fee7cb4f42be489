// Shapes that ran out of memory lately, and what may be tried meanwhile.
#pragma once

#include <cstdint>
#include <map>

#include "base/clock.h"
#include "base/sync.h"
#include "memory/memory_estimator.h"
#include "runtime/device.h"

namespace headroom {

// After a batch of n rows has run out of memory, batches of its length or longer have at most n/2 rows. Each `kRelief` doubles
// that, until it reaches the most rows that failed: then the ceiling is forgotten. So what took the memory (fragments, a neighbour)
// is given time to go, and a shape that cannot work is tried a few times a minute, not with every request. One row is never held
// back: whether it fits is for its own run to tell.
//
// Thread-safe.
class ShapeCeilings {
 public:
  static constexpr Duration kRelief = std::chrono::seconds(10);

  // A batch of `shape` has run out of memory at `now`.
  void Lower(BatchShape shape, TimePoint now) EXCLUDES(mutex_);

  // The most rows that a batch padded to `length` may have at `now`; the largest number where there is no ceiling.
  std::int64_t MaxRows(std::int64_t length, TimePoint now) const EXCLUDES(mutex_);

  // Ceilings in force at `now`.
  int count(TimePoint now) const EXCLUDES(mutex_);

 private:
  struct Ceiling {
    std::int64_t allowed = 1;  // rows, at `since`
    std::int64_t failed = 0;   // the most rows that failed since the ceiling came up
    TimePoint since{};
    std::int64_t MaxRows(TimePoint now) const;
  };

  mutable Mutex mutex_;
  std::map<std::int64_t, Ceiling> by_length_ GUARDED_BY(mutex_);
};

}  // namespace headroom
