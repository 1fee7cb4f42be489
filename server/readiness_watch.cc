#include "server/readiness_watch.h"

#include <algorithm>
#include <string>

#include "base/log.h"

namespace headroom {
namespace {

// The share of the budget that is free on the device that is best off: a row may run on any. None where no device tells.
std::optional<double> MemoryHeadroom(const ResourceReading& reading) {
  std::optional<double> best;
  for (const ResourceReading::OnDevice& device : reading.devices) {
    // A worker that plans has reserved all there is for a moment: what that leaves means nothing.
    MutexLock turn(device.on->planning);
    const absl::StatusOr<BudgetSnapshot> memory = device.on->budget->Snapshot();
    if (!memory.ok()) continue;
    const auto budget = static_cast<double>(memory->budget.count);
    const double free = budget > 0 ? 1 - static_cast<double>(memory->reserved.count) / budget : 0;
    best = std::max(best.value_or(0), free);
  }
  return best;
}

Duration OldestWait(const ModelSet& models, TimePoint now) {
  Duration oldest{0};
  const auto all = models.All();
  for (const auto& model : *all) {
    if (const auto arrived = model->queue.oldest_arrival()) oldest = std::max(oldest, now - *arrived);
  }
  return oldest;
}

}  // namespace

ReadinessFigures ReadinessWatch::FiguresOf(const ResourceReading& reading) {
  return {MemoryHeadroom(reading), OldestWait(models_, reading.time), latencies_.Percentile()};
}

void ReadinessWatch::Look(const ResourceReading& reading) {
  thresholds_.Step(FiguresOf(reading));
  for (const StrainKind kind : {StrainKind::kMemory, StrainKind::kQueueDelay, StrainKind::kLatency}) {
    strained_[static_cast<std::size_t>(kind)] = thresholds_.strained(kind);
  }
  const std::string reason = thresholds_.Reason();
  lifecycle_.SetStrain(reason);
  if (reason.empty() == !was_strained_) return;
  was_strained_ = !reason.empty();
  if (was_strained_) {
    Log(LogLevel::kWarning, "not ready by its thresholds; requests are served all the same", {{"reason", reason}});
  } else {
    Log(LogLevel::kInfo, "ready again: within its thresholds");
  }
}

}  // namespace headroom
