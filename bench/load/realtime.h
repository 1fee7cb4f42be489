// A sender that is late makes a server look slow: where the system allows it, it runs before everything else.
#pragma once

#include "base/clock.h"

namespace headroom {

// Schedules the calling thread SCHED_FIFO; the threads that it starts later are ordinary ones. False where that is not allowed.
bool ScheduleFirst(int priority);

// Waits until `time` by the machine's clock.
void PauseUntil(TimePoint time);

}  // namespace headroom
