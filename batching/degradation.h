// What a device leaves out when its memory runs low, step by step: named levels, entered at once and left slowly.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"

namespace headroom {

// Each does what those before it do, too.
enum class DegradationLevel {
  kNone,
  kSmallerBatches,      // batches hold half of the largest number of rows
  kNoTiers,             // rows beyond the last bucket are refused
  kLowPriorityRefused,  // so are requests of the less urgent half of the priorities
  kFallbackModel,       // what has a fallback model is answered by that
};
inline constexpr std::size_t kDegradationLevels = 5;
// "none", "smaller_batches", "no_tiers", "low_priority_refused", "fallback_model".
const char* NameOf(DegradationLevel level);

struct DegradationOptions {
  // The levels but kNone, in order: each is entered where the headroom (budget now ÷ budget at readiness) is below its share.
  // Half: batches of half the size fit half the budget, so nothing is lost but throughput. A third: the longest rows take many
  // times what an ordinary one does. A quarter, and less than a sixth: what is left is for whom it matters to most.
  std::array<double, kDegradationLevels - 1> enter_below = {0.5, 0.35, 0.25, 0.15};
  // A level is left where the headroom is so much above its share: a neighbour that takes and frees a few per cent changes nothing.
  double leave_above = 0.1;
  // And only so long after the last change, one level at a time: what has been short of memory may be so again.
  Duration dwell = std::chrono::seconds(10);
};

// Decides on a level. Pure but for what it remembers; not thread-safe.
class DegradationLadder {
 public:
  explicit DegradationLadder(DegradationOptions options = {}) : options_(options) {}

  // `headroom` ≥ 0 is the budget now ÷ the budget at readiness; `now` never falls.
  DegradationLevel Update(double headroom, TimePoint now);
  DegradationLevel level() const { return level_; }

 private:
  const DegradationOptions options_;
  DegradationLevel level_ = DegradationLevel::kNone;
  TimePoint changed_{};
};

// What the levels do. Priorities count from 1, the most urgent, to `levels`; 0 levels: there are none, and nothing is refused.
std::int64_t LargestBatchAt(DegradationLevel level, std::int64_t largest_batch);
bool RefusesTiers(DegradationLevel level);
bool RefusesPriority(DegradationLevel level, std::int64_t priority, std::int64_t levels);

struct ServingDevice;

// Keeps a device's level up to date. Step and MarkReady are called by one thread.
class DegradationWatch {
 public:
  explicit DegradationWatch(ServingDevice& device, DegradationOptions options = {}) : device_(device), ladder_(options) {}

  // What the device's batches may hold now is the measure of what comes; of what its own models take later, the measure is less,
  // too. To be called once, when it begins to serve.
  void MarkReady();
  // Reads the budget, sets the device's level, and logs a change of it. A device that does not tell its memory keeps its level.
  void Step(TimePoint now);

 private:
  ServingDevice& device_;
  DegradationLadder ladder_;
  std::optional<Bytes> with_others_;  // at readiness: what the idle budget exceeded the budget by
};

}  // namespace headroom
