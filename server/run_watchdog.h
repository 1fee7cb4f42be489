// Finds a run that hangs: a `forward` that will never return would otherwise keep its worker, its memory and its callers for ever,
// while health goes on saying that all is well.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "batching/batch_observer.h"
#include "batching/run_register.h"
#include "batching/served_model.h"
#include "server/resource_watch.h"

namespace headroom {

struct WatchdogOptions {
  // How many times its expected latency a run may take. Latencies are measured at load, on a machine that may be ten times as slow
  // under full load (all cores busy, several runs at once); five times that is no slowness any more. 0: no run hangs.
  double multiple = 50;
  // What no run is shorter than to be called hung, in seconds: the multiple of a run of a millisecond is less than a pause of the
  // machine (a swap, a suspended container) may take.
  int least_seconds = 60;
};

// How long a run of this expectation may take before it hangs; Duration::max() with the watchdog off.
Duration LongestRun(Duration expected, const WatchdogOptions& options);

// The first of `runs` that has taken longer than that at `now`.
std::optional<RunUnderWay> FirstHungRun(std::span<const RunUnderWay> runs, TimePoint now, const WatchdogOptions& options);

// Reports a device with a hung run as lost, once: it cannot be told what else of it works, and the run cannot be ended but with the
// process.
class RunWatchdog final : public WatchTask {
 public:
  // What is passed by reference outlives the watchdog.
  RunWatchdog(const std::vector<std::unique_ptr<ServingDevice>>& devices, BatchObserver& observer, WatchdogOptions options)
      : devices_(devices), observer_(observer), options_(options) {}

  // Asks no driver: that may hang along with the run.
  void Look(const ResourceReading& reading) override;

 private:
  const std::vector<std::unique_ptr<ServingDevice>>& devices_;
  BatchObserver& observer_;
  const WatchdogOptions options_;
  std::set<const ServingDevice*> told_;
};

}  // namespace headroom
