#include "bench/traffic/arrivals.h"

#include <absl/status/status.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace headroom {
namespace {

constexpr double kBurstSeconds = 1;
constexpr double kPeriodSeconds = 10;

}  // namespace

std::vector<Duration> ArrivalTimes(Random& random, const ArrivalProcess& process, Duration length) {
  const double bursting = kBurstSeconds / kPeriodSeconds;
  const double calm = process.rate / (1 - bursting + bursting * process.burst_factor);
  const double highest = calm * std::max(1.0, process.burst_factor);
  const double begins = Uniform(random) * (kPeriodSeconds - kBurstSeconds);  // in each period
  // A process of the highest rate, thinned to what the rate is at each moment.
  std::vector<Duration> times;
  double now = 0;
  while (true) {
    now -= std::log1p(-Uniform(random)) / highest;
    if (now >= Seconds(length)) return times;
    const double in_period = std::fmod(now, kPeriodSeconds);
    const bool bursts = in_period >= begins && in_period < begins + kBurstSeconds;
    if (Uniform(random) * highest < (bursts ? calm * process.burst_factor : calm)) times.push_back(FromSeconds(now));
  }
}

absl::StatusOr<std::vector<Arrival>> ParseTrace(absl::string_view text, double speed) {
  std::vector<Arrival> arrivals;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (++number == 1) {
      if (line != "arrival_seconds,length") return absl::InvalidArgumentError("a trace begins with arrival_seconds,length");
      continue;
    }
    if (line.empty()) continue;
    const std::vector<std::string> fields = absl::StrSplit(line, ',');
    double seconds = 0;
    Arrival arrival;
    if (fields.size() != 2 || !absl::SimpleAtod(fields[0], &seconds) || !(seconds >= 0 && seconds < 1e9) ||
        !absl::SimpleAtoi(fields[1], &arrival.length) || arrival.length < 1) {
      return absl::InvalidArgumentError(absl::StrCat("not a time and a length: line ", number));
    }
    arrival.at = FromSeconds(seconds / speed);
    if (!arrivals.empty() && arrival.at < arrivals.back().at) {
      return absl::InvalidArgumentError(absl::StrCat("earlier than the line before: line ", number));
    }
    arrivals.push_back(arrival);
  }
  return arrivals;
}

}  // namespace headroom
