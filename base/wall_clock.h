// The time of day, for what people and other machines are told. Nothing is decided by it: it may jump.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace headroom {

// Milliseconds from the Unix epoch to `time`, a time of RealClock, as the time of day goes now.
std::int64_t UnixMilliseconds(TimePoint time);

}  // namespace headroom
