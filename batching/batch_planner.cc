#include "batching/batch_planner.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "batching/batch_partition.h"

namespace headroom {
namespace {

class Planning {
 public:
  Planning(std::span<const PendingRow> rows, const BucketLadder& ladder, const PlanLimits& limits, const MemoryEstimator& estimator,
           const BatchTimes& times, TimePoint now)
      : rows_(rows), ladder_(ladder), limits_(limits), estimator_(estimator), times_(times), now_(now) {}

  Plan Run() {
    std::vector<Candidate> live = DropDeadRows();
    KeepMostUrgent(live);
    std::sort(live.begin(), live.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(a.padded, a.urgency, a.row) < std::tie(b.padded, b.urgency, b.row);
    });
    CutIntoBatches(KeepThoseThatFit(live));
    std::stable_sort(plan_.batches.begin(), plan_.batches.end(),
                     [&](const PlannedBatch& a, const PlannedBatch& b) { return Urgency(a) < Urgency(b); });
    HoldBack();
    for (const std::size_t row : plan_.waiting) plan_.next_wake = std::min(plan_.next_wake, rows_[row].deadline);
    return std::move(plan_);
  }

 private:
  struct Candidate {
    std::int64_t padded = 0;  // alone
    RowUrgency urgency;
    std::size_t row = 0;
  };
  // Candidates of one padded length, side by side.
  struct Group {
    LengthClass of;
    bool alone = false;
    std::span<const Candidate> members;
  };

  std::vector<Candidate> DropDeadRows() {
    std::vector<Candidate> live;
    live.reserve(rows_.size());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const PendingRow& row = rows_[i];
      if (row.deadline <= now_) {
        plan_.expired.push_back(i);
      } else if (row.gone) {
        plan_.gone.push_back(i);
      } else {
        live.push_back({ladder_.PaddedLength(row.placement.bucket, row.placement.kept_length), UrgencyOf(row), i});
      }
    }
    return live;
  }

  void KeepMostUrgent(std::vector<Candidate>& live) {
    if (live.size() <= kMostPlanned) return;
    const auto last = live.begin() + kMostPlanned;
    std::nth_element(live.begin(), last, live.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(a.urgency, a.row) < std::tie(b.urgency, b.row);
    });
    for (auto row = last; row != live.end(); ++row) plan_.waiting.push_back(row->row);
    live.erase(last, live.end());
  }

  // `live` ascend in padded length. Longest first, so that one question answers for all shorter lengths where memory is no limit.
  std::vector<Group> KeepThoseThatFit(std::span<const Candidate> live) {
    std::vector<Group> groups;
    std::int64_t known_to_fit = 0;  // rows, at a length that is at least as long
    while (!live.empty()) {
      const std::int64_t padded = live.back().padded;
      std::size_t begin = live.size();
      while (begin > 0 && live[begin - 1].padded == padded) --begin;
      Group group{
          {.length = padded, .mixes = ladder_.mixes_lengths()}, rows_[live.back().row].placement.alone, live.subspan(begin)};
      group.of.rows = static_cast<std::int64_t>(group.members.size());
      const auto reach = group.of.mixes ? static_cast<std::int64_t>(live.size()) : group.of.rows;
      const std::int64_t most = group.alone ? 1 : std::min(limits_.max_rows, reach);
      group.of.most_rows = most <= known_to_fit ? most : MostRows(padded, most);
      if (group.of.most_rows == most) known_to_fit = std::max(known_to_fit, most);
      if (group.of.most_rows > 0) {
        groups.push_back(group);
      } else {
        for (const Candidate& member : group.members) DoesNotFit(member);
      }
      live = live.first(begin);
    }
    std::reverse(groups.begin(), groups.end());
    return groups;
  }

  // That fit what is available; 0: not even one does.
  std::int64_t MostRows(std::int64_t padded, std::int64_t most) const {
    if (NeedsOf({most, padded}) <= limits_.available) return most;
    std::int64_t fit = 0;
    while (most - fit > 1) {
      const std::int64_t middle = fit + (most - fit) / 2;
      (NeedsOf({middle, padded}) <= limits_.available ? fit : most) = middle;
    }
    return fit;
  }

  void CutIntoBatches(std::vector<Group> groups) {
    while (!TryToCut(groups)) {
    }
  }

  // False where a batch needs more than its rows were foreseen to, since an estimate is not quite monotone: that length's batches
  // are made smaller then.
  bool TryToCut(std::vector<Group>& groups) {
    std::vector<LengthClass> classes;
    std::vector<std::pair<const Candidate*, Group*>> order;
    for (Group& group : groups) {
      classes.push_back(group.of);
      for (const Candidate& member : group.members) order.emplace_back(&member, &group);
    }
    const int workers = limits_.max_delay > Duration::zero() ? 1 : limits_.idle_workers;
    std::vector<PlannedBatch> batches;
    std::size_t first = 0;
    for (const std::int64_t count : PartitionRows(classes, times_, workers).rows) {
      const std::size_t end = first + static_cast<std::size_t>(count);
      Group& group = *order[end - 1].second;
      PlannedBatch batch;
      batch.shape = {count, group.of.length};
      batch.needs = NeedsOf(batch.shape);
      if (batch.needs > limits_.available && count > 1) {
        group.of.most_rows = count - 1;
        return false;
      }
      batch.bucket = rows_[order[end - 1].first->row].placement.bucket;
      for (std::size_t i = first; i < end; ++i) batch.rows.push_back(order[i].first->row);
      const bool others_might_join = !group.alone && ((end < order.size() && order[end].second == &group) ||
                                                      (first > 0 && (group.of.mixes || order[first - 1].second == &group)));
      if (others_might_join) batch.limited_by = LimitOf(batch.shape);
      batches.push_back(std::move(batch));
      first = end;
    }
    for (PlannedBatch& batch : batches) {
      if (batch.needs > limits_.available) {
        DoesNotFit({batch.shape.length, UrgencyOf(rows_[batch.rows.front()]), batch.rows.front()});
      } else {
        Close(std::move(batch));
      }
    }
    return true;
  }

  // What keeps one more row out of a batch.
  BatchLimit LimitOf(const BatchShape& shape) const {
    if (shape.rows >= limits_.max_rows) return BatchLimit::kRows;
    return NeedsOf({shape.rows + 1, shape.length}) > limits_.available ? BatchLimit::kMemory : BatchLimit::kNone;
  }

  // The batches are in order.
  void HoldBack() {
    if (!starving_) return;
    plan_.holds_back = true;
    const auto first =
        std::upper_bound(plan_.batches.begin(), plan_.batches.end(), *starving_,
                         [&](const RowUrgency& urgency, const PlannedBatch& batch) { return urgency < Urgency(batch); });
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

  void DoesNotFit(const Candidate& row) {
    const Bytes needs = NeedsOf({1, row.padded});
    if (needs > limits_.idle_budget && limits_.refuse_too_large) {
      plan_.refused.push_back({row.row, needs});
      return;
    }
    plan_.waiting.push_back(row.row);
    const bool only_running_batches_in_its_way = needs <= limits_.budget;
    if (only_running_batches_in_its_way && After(rows_[row.row].arrived, limits_.max_overtaking) <= now_) {
      starving_ = starving_ ? std::min(*starving_, row.urgency) : row.urgency;
    }
  }

  // Moves `batch` into the plan, or lets its rows wait for company.
  void Close(PlannedBatch batch) {
    const TimePoint wake = WaitsForCompanyUntil(batch);
    if (wake > now_) {
      plan_.waiting.insert(plan_.waiting.end(), batch.rows.begin(), batch.rows.end());
      plan_.next_wake = std::min(plan_.next_wake, wake);
    } else {
      plan_.batches.push_back(std::move(batch));
    }
  }

  TimePoint WaitsForCompanyUntil(const PlannedBatch& batch) const {
    if (limits_.max_delay <= Duration::zero()) return now_;
    const auto& preferred = limits_.preferred_rows;
    const bool complete = rows_[batch.rows.front()].placement.alone || LimitOf(batch.shape) != BatchLimit::kNone ||
                          std::find(preferred.begin(), preferred.end(), batch.shape.rows) != preferred.end();
    if (complete) return now_;
    TimePoint wake = kForever;
    TimePoint deadline = kForever;
    for (const std::size_t row : batch.rows) {
      wake = std::min(wake, After(rows_[row].arrived, limits_.max_delay));
      deadline = std::min(deadline, rows_[row].deadline);
    }
    return deadline <= wake ? now_ : wake;  // company is not worth an expiry
  }

  // The most urgent row's.
  RowUrgency Urgency(const PlannedBatch& batch) const {
    RowUrgency first{std::numeric_limits<std::int64_t>::max(), kForever};
    for (const std::size_t row : batch.rows) first = std::min(first, UrgencyOf(rows_[row]));
    return first;
  }

  RowUrgency UrgencyOf(const PendingRow& row) const {
    if (limits_.oldest_first) return {0, row.arrived};
    return {row.priority, DueTime(row.arrived, row.deadline)};
  }

  const std::span<const PendingRow> rows_;
  const BucketLadder& ladder_;
  const PlanLimits& limits_;
  const MemoryEstimator& estimator_;
  const BatchTimes& times_;
  const TimePoint now_;
  Plan plan_;
  std::optional<RowUrgency> starving_;  // the most urgent of those that have waited too long for memory
};

}  // namespace

Plan PlanBatches(std::span<const PendingRow> rows, const BucketLadder& ladder, const PlanLimits& limits,
                 const MemoryEstimator& estimator, const BatchTimes& times, TimePoint now) {
  return Planning(rows, ladder, limits, estimator, times, now).Run();
}

}  // namespace headroom
