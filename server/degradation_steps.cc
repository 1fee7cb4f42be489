#include "server/degradation_steps.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace headroom {

DegradationSteps::DegradationSteps(const std::vector<std::unique_ptr<ServingDevice>>& devices, Clock& clock) : clock_(clock) {
  for (const auto& device : devices) watches_.emplace_back(*device).MarkReady();
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void DegradationSteps::Step() {
  for (DegradationWatch& watch : watches_) watch.Step(clock_.Now());
}

void DegradationSteps::Run(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    // With the lock, so that a thread that is about to wait is not missed.
    MutexLock lock(mutex_);
    stopped_.NotifyAll();
  });
  while (!stop.stop_requested()) {
    Step();
    const TimePoint next = After(clock_.Now(), kPeriod);
    MutexLock lock(mutex_);
    while (!stop.stop_requested() && clock_.WaitUntil(mutex_, stopped_, next)) {
    }
  }
}

std::string DegradationText(const std::vector<std::unique_ptr<ServingDevice>>& devices) {
  std::vector<std::string> degraded;
  for (const auto& device : devices) {
    const DegradationLevel level = device->degradation;
    if (level != DegradationLevel::kNone) degraded.push_back(absl::StrCat(NameOf(level), " on ", device->device->name()));
  }
  return absl::StrJoin(degraded, ", ");
}

}  // namespace headroom
