// Answers rows whose time is up while every worker is busy.
#pragma once

#include <stop_token>

#include "base/clock.h"
#include "base/sync.h"
#include "batching/served_model.h"

namespace headroom {

// Thread-safe; Run belongs to one thread.
class DeadlineTimer {
 public:
  // Both outlive the timer.
  DeadlineTimer(const ModelSet& models, Clock& clock) : models_(models), clock_(clock) {}

  // A row with this deadline waits from now on. Wakes the timer only where it would sleep past it.
  void Watch(TimePoint deadline) EXCLUDES(mutex_);

  // Answers every waiting row that is dead now; says when the next deadline is.
  TimePoint Step();

  // Steps at each deadline until `stop` is asked for.
  void Run(const std::stop_token& stop) EXCLUDES(mutex_);

 private:
  const ModelSet& models_;
  Clock& clock_;

  Mutex mutex_;
  CondVar condition_;
  TimePoint next_ GUARDED_BY(mutex_) = kForever;
};

}  // namespace headroom
