// What waits in a queue, as work: by priority and by caller.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/sync.h"

namespace headroom {

// What a row adds to the time until a queue is empty.
struct RowWork {
  Duration compute{0};  // its part of a full batch, as calibrated
  // Of a batch: a row of a bucket whose largest batch is 64 is 15,625. Whole numbers, so that what goes is what came.
  std::int64_t batch_millionths = 0;
};

// Rows together.
struct Load {
  std::int64_t rows = 0;
  Bytes bytes{0};  // of their inputs
  Duration compute{0};
  std::int64_t batch_millionths = 0;

  Load& operator+=(const Load& other);
  Load& operator-=(const Load& other);
  friend bool operator==(const Load&, const Load&) = default;
};

// A caller, as the server tells it from others: a hash of the name that it gives. 0 where it gives none.
using CallerId = std::uint64_t;

// Sums. Not thread-safe: a queue's lock guards it.
class QueueLoad {
 public:
  void Add(std::int64_t priority, CallerId caller, const Load& row);
  // What was added.
  void Remove(std::int64_t priority, CallerId caller, const Load& row);

  const Load& total() const { return total_; }
  // Of rows that are as urgent as `priority`, or more.
  Load UpTo(std::int64_t priority) const;
  // None of those without a name.
  Load Of(CallerId caller) const;

 private:
  Load total_;
  std::map<std::int64_t, Load> by_priority_;
  std::unordered_map<CallerId, Load> by_caller_;  // of callers that have rows waiting, no others
};

// A bound on what waits in all queues together. Thread-safe.
class QueueTotals {
 public:
  struct Bounds {
    std::int64_t rows = 0;  // 0: no bound
    Bytes bytes{0};         // 0: no bound
  };
  explicit QueueTotals(Bounds bounds) : bounds_(bounds) {}

  // Takes all or nothing.
  bool TryAdd(std::int64_t rows, Bytes bytes) EXCLUDES(mutex_);
  // Beyond the bound too: what was admitted before.
  void Add(std::int64_t rows, Bytes bytes) EXCLUDES(mutex_);
  void Remove(std::int64_t rows, Bytes bytes) EXCLUDES(mutex_);

 private:
  const Bounds bounds_;
  Mutex mutex_;
  std::int64_t rows_ GUARDED_BY(mutex_) = 0;
  Bytes bytes_ GUARDED_BY(mutex_){0};
};

}  // namespace headroom
