#include "batching/degradation.h"

#include <algorithm>

#include "base/log.h"
#include "batching/served_model.h"

namespace headroom {

const char* NameOf(DegradationLevel level) {
  switch (level) {
    case DegradationLevel::kNone: return "none";
    case DegradationLevel::kSmallerBatches: return "smaller_batches";
    case DegradationLevel::kNoTiers: return "no_tiers";
    case DegradationLevel::kLowPriorityRefused: return "low_priority_refused";
    case DegradationLevel::kFallbackModel: return "fallback_model";
  }
  return "";
}

DegradationLevel DegradationLadder::Update(double headroom, TimePoint now) {
  const auto below = [&](double share) { return headroom < share; };
  const auto entered = std::count_if(options_.enter_below.begin(), options_.enter_below.end(), below);
  const auto current = static_cast<std::ptrdiff_t>(level_);
  std::ptrdiff_t next = current;
  if (entered > current) {
    next = entered;
  } else if (current > 0 && headroom >= options_.enter_below.at(static_cast<std::size_t>(current) - 1) + options_.leave_above &&
             now >= After(changed_, options_.dwell)) {
    next = current - 1;
  }
  if (next != current) changed_ = now;
  level_ = static_cast<DegradationLevel>(next);
  return level_;
}

std::int64_t LargestBatchAt(DegradationLevel level, std::int64_t largest_batch) {
  return level >= DegradationLevel::kSmallerBatches ? std::max<std::int64_t>(1, largest_batch / 2) : largest_batch;
}

bool RefusesTiers(DegradationLevel level) { return level >= DegradationLevel::kNoTiers; }

bool RefusesPriority(DegradationLevel level, std::int64_t priority, std::int64_t levels) {
  return level >= DegradationLevel::kLowPriorityRefused && levels > 0 && priority > (levels + 1) / 2;
}

void DegradationWatch::MarkReady() {
  const auto memory = device_.budget->Snapshot();
  if (memory.ok()) with_others_ = device_.budget->idle_budget() - memory->budget;
}

void DegradationWatch::Step(TimePoint now) {
  const auto memory = device_.budget->Snapshot();
  if (!memory.ok() || !with_others_) return;
  const Bytes usual = device_.budget->idle_budget() - *with_others_;
  if (usual.count <= 0) return;
  const double headroom = static_cast<double>(memory->budget.count) / static_cast<double>(usual.count);
  const DegradationLevel before = ladder_.level();
  const DegradationLevel level = ladder_.Update(headroom, now);
  if (level == before) return;
  device_.degradation = level;
  Log(level > before ? LogLevel::kWarning : LogLevel::kInfo,
      level > before ? "short of memory: the service is degraded" : "memory has come back: the service is less degraded",
      {{"device", device_.device->name()},
       {"level", NameOf(level)},
       {"before", NameOf(before)},
       {"budget", ToString(memory->budget)},
       {"usual_budget", ToString(usual)}});
}

}  // namespace headroom
