// A clock that stands still until a test moves it.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace headroom {

// Thread-safe. The thread that makes the clock owns the time: it calls Advance, and where it waits itself, nobody else could
// move the time, so the wait is over at once and the time is what it waited for. Other threads sleep until they are notified
// or the time has come.
//
// What a sleeping thread waits on outlives the calls of Advance.
class ManualClock final : public Clock {
 public:
  TimePoint Now() const override {
    MutexLock lock(mutex_);
    return now_;
  }

  bool WaitUntil(Mutex& mutex, CondVar& condition, TimePoint time) override REQUIRES(mutex) {
    {
      MutexLock lock(mutex_);
      if (time <= now_) return false;
      if (std::this_thread::get_id() == owner_) {
        if (time == kForever) throw std::logic_error("the thread that owns the time waits for ever");
        now_ = time;
        return false;
      }
      sleepers_.push_back({&mutex, &condition, time, std::this_thread::get_id()});
      fell_asleep_.NotifyAll();
    }
    condition.Wait(mutex);
    MutexLock lock(mutex_);
    sleepers_.erase(std::find_if(sleepers_.begin(), sleepers_.end(),
                                 [](const Sleeper& sleeper) { return sleeper.thread == std::this_thread::get_id(); }));
    return now_ < time;
  }

  // Moves the time and wakes whoever waited for it.
  void Advance(Duration by) {
    std::vector<Sleeper> due;
    {
      MutexLock lock(mutex_);
      now_ += by;
      std::copy_if(sleepers_.begin(), sleepers_.end(), std::back_inserter(due),
                   [&](const Sleeper& sleeper) REQUIRES(mutex_) { return sleeper.until <= now_; });
    }
    for (const Sleeper& sleeper : due) {
      // Held from before it was listed until it sleeps: with the mutex, the notification cannot come too early.
      MutexLock lock(*sleeper.mutex);
      sleeper.condition->NotifyAll();
    }
  }

  // Waits until some thread sleeps until exactly `time`.
  void AwaitSleeperUntil(TimePoint time) {
    MutexLock lock(mutex_);
    while (std::none_of(sleepers_.begin(), sleepers_.end(), [&](const Sleeper& sleeper) { return sleeper.until == time; })) {
      fell_asleep_.Wait(mutex_);
    }
  }

 private:
  struct Sleeper {
    Mutex* mutex;
    CondVar* condition;
    TimePoint until;
    std::thread::id thread;
  };

  const std::thread::id owner_ = std::this_thread::get_id();
  mutable Mutex mutex_;
  CondVar fell_asleep_;
  TimePoint now_ GUARDED_BY(mutex_){std::chrono::hours(1)};
  std::vector<Sleeper> sleepers_ GUARDED_BY(mutex_);
};

}  // namespace headroom
