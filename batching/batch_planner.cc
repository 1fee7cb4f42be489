#include "batching/batch_planner.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace headroom {
namespace {

// Rows that may share a batch.
struct GroupKey {
  std::int64_t bucket = 0;
  std::int64_t exact_length = 0;  // where lengths must not mix; else 0
  auto operator<=>(const GroupKey&) const = default;
};

class Planning {
 public:
  Planning(std::span<const PendingRow> rows, const BucketLadder& ladder, const PlanLimits& limits, const MemoryEstimator& estimator,
           TimePoint now)
      : rows_(rows), ladder_(ladder), limits_(limits), estimator_(estimator), now_(now) {}

  Plan Run() {
    std::map<GroupKey, std::vector<std::size_t>> groups = DropDeadRows();
    for (auto& [key, members] : groups) {
      std::sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
        return std::tuple(rows_[a].placement.kept_length, rows_[a].arrived, a) <
               std::tuple(rows_[b].placement.kept_length, rows_[b].arrived, b);
      });
      CutIntoBatches(key.bucket, members);
    }
    std::stable_sort(plan_.batches.begin(), plan_.batches.end(),
                     [&](const PlannedBatch& a, const PlannedBatch& b) { return Urgency(a) < Urgency(b); });
    HoldBack();
    for (const std::size_t row : plan_.waiting) plan_.next_wake = std::min(plan_.next_wake, rows_[row].deadline);
    return std::move(plan_);
  }

 private:
  std::map<GroupKey, std::vector<std::size_t>> DropDeadRows() {
    std::map<GroupKey, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const PendingRow& row = rows_[i];
      if (row.deadline <= now_) {
        plan_.expired.push_back(i);
      } else if (row.gone) {
        plan_.gone.push_back(i);
      } else {
        groups[{row.placement.bucket, ladder_.mixes_lengths() ? 0 : row.placement.kept_length}].push_back(i);
      }
    }
    return groups;
  }

  // `members` share a bucket and ascend in length.
  void CutIntoBatches(std::int64_t bucket, std::span<const std::size_t> members) {
    PlannedBatch open;
    open.bucket = bucket;
    for (const std::size_t row : members) {
      const Placement& placement = rows_[row].placement;
      const std::int64_t max_rows = placement.alone ? 1 : limits_.max_rows;
      const std::int64_t padded = ladder_.PaddedLength(bucket, placement.kept_length);
      BatchShape grown{static_cast<std::int64_t>(open.rows.size()) + 1, padded};
      Bytes needs = NeedsOf(grown);
      if (!open.rows.empty() && (grown.rows > max_rows || needs > limits_.available)) {
        open.limited_by = grown.rows > max_rows ? BatchLimit::kRows : BatchLimit::kMemory;
        Close(open);
        grown = {1, padded};
        needs = NeedsOf(grown);
      }
      if (grown.rows == 1 && needs > limits_.available) {
        DoesNotFit(row, needs);
        continue;
      }
      open.rows.push_back(row);
      open.shape = grown;
      open.needs = needs;
    }
    if (!open.rows.empty()) Close(open);
  }

  // The batches are in order.
  void HoldBack() {
    if (!starving_) return;
    plan_.holds_back = true;
    const auto first = std::upper_bound(plan_.batches.begin(), plan_.batches.end(), *starving_,
                                        [&](const auto& urgency, const PlannedBatch& batch) { return urgency < Urgency(batch); });
    for (auto batch = first; batch != plan_.batches.end(); ++batch) {
      plan_.waiting.insert(plan_.waiting.end(), batch->rows.begin(), batch->rows.end());
    }
    plan_.batches.erase(first, plan_.batches.end());
  }

  Bytes NeedsOf(const BatchShape& shape) const {
    const absl::StatusOr<Bytes> needs = estimator_.Peak(shape);
    // A length that nothing is known of fits nowhere; placement lets none through.
    return needs.ok() ? *needs : Bytes{std::numeric_limits<std::int64_t>::max()};
  }

  void DoesNotFit(std::size_t row, Bytes needs) {
    if (needs > limits_.idle_budget && limits_.refuse_too_large) {
      plan_.refused.push_back({row, needs});
    } else {
      plan_.waiting.push_back(row);
      const bool only_running_batches_in_its_way = needs <= limits_.budget;
      if (only_running_batches_in_its_way && After(rows_[row].arrived, limits_.max_overtaking) <= now_) {
        const std::tuple urgency = UrgencyOf(rows_[row]);
        starving_ = starving_ ? std::min(*starving_, urgency) : urgency;
      }
    }
  }

  // Moves `open` into the plan, or lets its rows wait for company; leaves it empty.
  void Close(PlannedBatch& open) {
    const TimePoint wake = WaitsForCompanyUntil(open);
    if (wake > now_) {
      plan_.waiting.insert(plan_.waiting.end(), open.rows.begin(), open.rows.end());
      plan_.next_wake = std::min(plan_.next_wake, wake);
    } else {
      plan_.batches.push_back(open);
    }
    open.rows.clear();
    open.limited_by = BatchLimit::kNone;
  }

  TimePoint WaitsForCompanyUntil(const PlannedBatch& batch) const {
    const auto count = static_cast<std::int64_t>(batch.rows.size());
    const auto& preferred = limits_.preferred_rows;
    const bool complete = batch.limited_by != BatchLimit::kNone || count >= limits_.max_rows ||
                          rows_[batch.rows.front()].placement.alone ||
                          std::find(preferred.begin(), preferred.end(), count) != preferred.end();
    if (complete || limits_.max_delay <= Duration::zero()) return now_;
    TimePoint wake = kForever;
    TimePoint deadline = kForever;
    for (const std::size_t row : batch.rows) {
      wake = std::min(wake, After(rows_[row].arrived, limits_.max_delay));
      deadline = std::min(deadline, rows_[row].deadline);
    }
    return deadline <= wake ? now_ : wake;  // company is not worth an expiry
  }

  // The most urgent row's.
  std::tuple<std::int64_t, TimePoint> Urgency(const PlannedBatch& batch) const {
    std::tuple<std::int64_t, TimePoint> first{std::numeric_limits<std::int64_t>::max(), kForever};
    for (const std::size_t row : batch.rows) {
      first = std::min(first, UrgencyOf(rows_[row]));
    }
    return first;
  }

  std::tuple<std::int64_t, TimePoint> UrgencyOf(const PendingRow& row) const {
    return {limits_.oldest_first ? 0 : row.priority, row.arrived};
  }

  const std::span<const PendingRow> rows_;
  const BucketLadder& ladder_;
  const PlanLimits& limits_;
  const MemoryEstimator& estimator_;
  const TimePoint now_;
  Plan plan_;
  std::optional<std::tuple<std::int64_t, TimePoint>> starving_;  // the most urgent of those that have waited too long for memory
};

}  // namespace

Plan PlanBatches(std::span<const PendingRow> rows, const BucketLadder& ladder, const PlanLimits& limits,
                 const MemoryEstimator& estimator, TimePoint now) {
  return Planning(rows, ladder, limits, estimator, now).Run();
}

}  // namespace headroom
