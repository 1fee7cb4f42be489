#include "base/clock.h"

#include "base/wall_clock.h"

namespace headroom {
namespace {

class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }

  bool WaitUntil(Mutex& mutex, CondVar& condition, TimePoint time) REQUIRES(mutex) override {
    // std::condition_variable overflows on the largest time points.
    if (time == kForever) {
      condition.Wait(mutex);
      return true;
    }
    return condition.WaitUntil(mutex, time);
  }
};

}  // namespace

Clock& RealClock() {
  // Never destroyed: threads may ask it while the process ends.
  static Clock& clock = *new SteadyClock;
  return clock;
}

std::int64_t UnixMilliseconds(TimePoint time) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const Duration ago = std::chrono::steady_clock::now() - time;
  return std::chrono::duration_cast<std::chrono::milliseconds>(now - ago).count();
}

}  // namespace headroom
