// When the calls of an open loop are to be sent: fixed before the first of them is, whatever the server does.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "bench/traffic/random.h"

namespace headroom {

// A Poisson process. With a factor other than 1 its rate is that many times as high as the calm one in bursts of a second, one in
// each ten seconds, and `rate` on the whole.
struct ArrivalProcess {
  double rate = 1;  // a second, on average; above 0
  double burst_factor = 1;
};

// Ascending times from the start, all before `length`.
std::vector<Duration> ArrivalTimes(Random& random, const ArrivalProcess& process, Duration length);

struct Arrival {
  Duration at{0};
  std::int64_t length = 0;
};

// A recorded trace, "arrival_seconds,length" and a line for each arrival, ascending, at `speed` times its own pace.
// INVALID_ARGUMENT, naming the line, for other text.
absl::StatusOr<std::vector<Arrival>> ParseTrace(absl::string_view text, double speed);

}  // namespace headroom
