// Keeps the degradation levels of all devices up to date.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "batching/degradation.h"
#include "batching/served_model.h"
#include "server/resource_watch.h"

namespace headroom {

// Takes the devices' budgets at its construction for those at readiness.
class DegradationSteps final : public WatchTask {
 public:
  // `devices` outlives this object.
  explicit DegradationSteps(const std::vector<std::unique_ptr<ServingDevice>>& devices);

  // One look at each device's budget.
  void Look(const ResourceReading& reading) override;

 private:
  std::vector<DegradationWatch> watches_;
};

// "smaller_batches on cpu, no_tiers on cuda:1"; empty where nothing is left out.
std::string DegradationText(const std::vector<std::unique_ptr<ServingDevice>>& devices);

}  // namespace headroom
