#include "server/degradation_steps.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace headroom {

DegradationSteps::DegradationSteps(const std::vector<std::unique_ptr<ServingDevice>>& devices) {
  for (const auto& device : devices) watches_.emplace_back(*device).MarkReady();
}

void DegradationSteps::Look(const ResourceReading& reading) {
  for (DegradationWatch& watch : watches_) watch.Step(reading.time);
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
