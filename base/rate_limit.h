// At most one event in a while, and how many were held back: for log lines that traffic could repeat without end.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/sync.h"

namespace headroom {

// Thread-safe.
class RateLimit {
 public:
  explicit RateLimit(Duration every) : every_(every) {}

  // Whether an event at `now` may pass: how many were held back since the last that did, or nullopt where it is held back too.
  std::optional<std::int64_t> Pass(TimePoint now) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (now < next_) {
      ++held_back_;
      return std::nullopt;
    }
    next_ = After(now, every_);
    const std::int64_t held_back = held_back_;
    held_back_ = 0;
    return held_back;
  }

 private:
  const Duration every_;
  Mutex mutex_;
  TimePoint next_ GUARDED_BY(mutex_) = TimePoint::min();
  std::int64_t held_back_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headroom
