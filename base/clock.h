// Monotonic time. The only door to real time: everything else is handed a Clock, so that tests own the time.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/sync.h"

namespace headroom {

using Duration = std::chrono::steady_clock::duration;  // nanoseconds
using TimePoint = std::chrono::steady_clock::time_point;

// "Never": later than every other time.
inline constexpr TimePoint kForever = TimePoint::max();

// `time + wait`, or kForever where that would overflow.
constexpr TimePoint After(TimePoint time, Duration wait) { return wait >= kForever - time ? kForever : time + wait; }

constexpr double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
// To the nearest nanosecond. `seconds` must fit a Duration: some 290 years.
constexpr Duration FromSeconds(double seconds) { return std::chrono::round<Duration>(std::chrono::duration<double>(seconds)); }
constexpr std::int64_t Microseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
  // Waits until `condition` is notified or `time` has come; false where the time came first. May wake for no reason.
  virtual bool WaitUntil(Mutex& mutex, CondVar& condition, TimePoint time) REQUIRES(mutex) = 0;
};

// The machine's monotonic clock; lives as long as the process.
Clock& RealClock();

}  // namespace headroom
