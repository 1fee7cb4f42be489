// Keeps the degradation levels of all devices up to date, from a thread of its own.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "batching/degradation.h"
#include "batching/served_model.h"

namespace headroom {

// Takes the devices' budgets at its construction for those at readiness. Ends its thread in its destructor.
class DegradationSteps {
 public:
  // Memory that a neighbour takes is noticed within this; a look costs a driver call.
  static constexpr Duration kPeriod = std::chrono::milliseconds(500);

  // What is passed outlives this object.
  DegradationSteps(const std::vector<std::unique_ptr<ServingDevice>>& devices, Clock& clock);

  // One look at each device. Called by the thread alone, but in tests.
  void Step();

 private:
  void Run(const std::stop_token& stop) EXCLUDES(mutex_);

  Clock& clock_;
  std::vector<DegradationWatch> watches_;
  Mutex mutex_;
  CondVar stopped_;
  std::jthread thread_;  // last: it uses the others
};

// "smaller_batches on cpu, no_tiers on cuda:1"; empty where nothing is left out.
std::string DegradationText(const std::vector<std::unique_ptr<ServingDevice>>& devices);

}  // namespace headroom
