#include "server/readiness_thresholds.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <vector>

namespace headroom {
namespace {

std::int64_t Milliseconds(Duration duration) { return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count(); }

}  // namespace

const char* NameOf(StrainKind kind) {
  switch (kind) {
    case StrainKind::kMemory: return "memory";
    case StrainKind::kQueueDelay: return "queue_delay";
    case StrainKind::kLatency: return "latency";
  }
  return "";
}

ReadinessThresholds::Look ReadinessThresholds::LookAtMemory(const ReadinessFigures& figures, std::string& figure) const {
  const double least = options_.min_memory_headroom;
  if (least <= 0) return Look::kClear;
  if (!figures.memory_headroom) return Look::kBetween;
  const double free = *figures.memory_headroom;
  figure = absl::StrCat(static_cast<int>(free * 100), " % of the memory budget is free, less than ", least * 100, " %");
  if (free < least) return Look::kBeyond;
  return free >= std::min(1.0, least / kClear) ? Look::kClear : Look::kBetween;
}

ReadinessThresholds::Look ReadinessThresholds::LookAtBound(Duration value, std::int64_t bound_ms, std::string& figure) const {
  if (bound_ms <= 0) return Look::kClear;
  const Duration bound = std::chrono::milliseconds(bound_ms);
  figure = absl::StrCat(Milliseconds(value), " ms, more than ", bound_ms, " ms");
  if (value > bound) return Look::kBeyond;
  return Seconds(value) <= Seconds(bound) * kClear ? Look::kClear : Look::kBetween;
}

void ReadinessThresholds::Count(State& state, Look look) {
  const bool against = look == (state.strained ? Look::kClear : Look::kBeyond);
  state.looks = against ? state.looks + 1 : 0;
  if (state.looks < (state.strained ? kLooksToLeave : kLooksToEnter)) return;
  state.strained = !state.strained;
  state.looks = 0;
}

void ReadinessThresholds::Step(const ReadinessFigures& figures) {
  auto& [memory, delay, latency] = states_;
  Count(memory, LookAtMemory(figures, memory.figure));
  Count(delay, LookAtBound(figures.oldest_wait, options_.max_queue_delay_ms, delay.figure));
  Count(latency, LookAtBound(figures.latency.value_or(Duration::zero()), options_.max_latency_ms, latency.figure));
}

std::string ReadinessThresholds::Reason() const {
  const std::array<const char*, kStrainKinds> words = {"", "a row has waited ", "1 % of the latest requests took "};
  std::vector<std::string> reasons;
  for (std::size_t kind = 0; kind < kStrainKinds; ++kind) {
    if (states_[kind].strained) reasons.push_back(absl::StrCat(words[kind], states_[kind].figure));
  }
  if (reasons.empty()) return "";
  return absl::StrCat("the server serves, and should be sent less: ", absl::StrJoin(reasons, "; "));
}

}  // namespace headroom
