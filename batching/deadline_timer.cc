#include "batching/deadline_timer.h"

#include <algorithm>

#include "batching/batcher.h"

namespace headroom {

void DeadlineTimer::Watch(TimePoint deadline) {
  {
    MutexLock lock(mutex_);
    if (deadline >= next_) return;
    next_ = deadline;
  }
  condition_.NotifyOne();
}

TimePoint DeadlineTimer::Step() {
  TimePoint next = kForever;
  const std::shared_ptr<const ModelSet::Models> models = models_.All();
  for (const auto& model : *models) {
    const Claim dead = model->queue.ClaimDead(clock_.Now());
    FinishDeadRows(dead);
    next = std::min(next, dead.next_wake);
  }
  return next;
}

void DeadlineTimer::Run(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(mutex_);
    condition_.NotifyOne();
  });
  while (!stop.stop_requested()) {
    {
      MutexLock lock(mutex_);
      while (!stop.stop_requested() && next_ > clock_.Now()) clock_.WaitUntil(mutex_, condition_, next_);
      // Rows that come from here on wake the timer again; those that are queued already are found by Step.
      next_ = kForever;
    }
    if (!stop.stop_requested()) Watch(Step());
  }
}

}  // namespace headroom
