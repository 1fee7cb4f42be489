#include "bench/load/realtime.h"

#include <sched.h>

#include "base/sync.h"

namespace headroom {

bool ScheduleFirst(int priority) {
  sched_param parameter{};
  parameter.sched_priority = priority;
  return sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &parameter) == 0;
}

void PauseUntil(TimePoint time) {
  // Nobody notifies: what wakes it is the time.
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  while (RealClock().Now() < time) RealClock().WaitUntil(mutex, never, time);
}

}  // namespace headroom
