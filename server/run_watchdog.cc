#include "server/run_watchdog.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <string>

#include "base/log.h"

namespace headroom {

Duration LongestRun(Duration expected, const WatchdogOptions& options) {
  if (options.multiple <= 0) return Duration::max();
  const double seconds = std::max(Seconds(expected) * options.multiple, static_cast<double>(options.least_seconds));
  // A year is for ever, and fits a Duration.
  constexpr double kLongest = 365.0 * 86'400;
  return FromSeconds(std::min(seconds, kLongest));
}

std::optional<RunUnderWay> FirstHungRun(std::span<const RunUnderWay> runs, TimePoint now, const WatchdogOptions& options) {
  const auto hung = std::find_if(runs.begin(), runs.end(),
                                 [&](const RunUnderWay& run) { return now - run.started > LongestRun(run.expected, options); });
  return hung == runs.end() ? std::nullopt : std::optional<RunUnderWay>(*hung);
}

void RunWatchdog::Look(const ResourceReading& reading) {
  for (const auto& device : devices_) {
    if (told_.contains(device.get())) continue;
    const std::vector<RunUnderWay> runs = device->runs.UnderWay();
    const std::optional<RunUnderWay> hung = FirstHungRun(runs, reading.time, options_);
    if (!hung) continue;
    told_.insert(device.get());
    const double age = Seconds(reading.time - hung->started);
    Log(LogLevel::kError, "a run hangs: the model does not return",
        {{"model", hung->model},
         {"device", device->device->name()},
         {"rows", hung->shape.rows},
         {"length", hung->shape.length},
         {"seconds", age},
         {"expected_seconds", Seconds(hung->expected)},
         {"bound_seconds", Seconds(LongestRun(hung->expected, options_))}});
    observer_.DeviceWasLost(device->device->name(), absl::StrCat("a run of model '", hung->model, "' hangs"));
  }
}

}  // namespace headroom
