#include "batching/batch_partition.h"

#include <algorithm>
#include <limits>

namespace headroom {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 2;

// Nobody could measure less, and rounding is well below it: partitions whose costs differ by less cost the same.
constexpr std::int64_t kTie = 50;
constexpr double kHorizonSeconds = 4;

class Partitioning {
 public:
  Partitioning(std::span<const LengthClass> classes, const BatchTimes& times) {
    std::int64_t before = 0;
    for (const LengthClass& of : classes) {
      const std::int64_t reach = of.mixes ? before + of.rows : of.rows;
      const Costs costs{costs_.size(), std::min(of.most_rows, reach), before, of.mixes};
      for (std::int64_t rows = 1; rows <= costs.most_rows; ++rows) costs_.push_back(CostOf({rows, of.length}, times).count());
      by_row_.insert(by_row_.end(), static_cast<std::size_t>(of.rows), classes_.size());
      classes_.push_back(costs);
      before += of.rows;
    }
    least_total_.resize(by_row_.size() + 1);
    last_batch_.resize(by_row_.size() + 1);
  }

  // The partition of the least total cost in which no batch costs more than `longest`, which every row alone keeps to.
  Partition Within(std::int64_t longest) {
    least_total_[0] = 0;
    for (std::size_t i = 1; i <= by_row_.size(); ++i) {
      const Costs& of = classes_[by_row_[i - 1]];
      const auto reach = static_cast<std::int64_t>(i) - (of.mixes ? 0 : of.first_row);
      const std::int64_t most = std::min(of.most_rows, reach);
      const std::int64_t* const cost = &costs_[of.at];
      std::int64_t best = kNever;
      std::int64_t best_rows = 0;
      for (std::int64_t rows = 1; rows <= most && cost[rows - 1] <= longest; ++rows) {
        const std::int64_t total = least_total_[i - static_cast<std::size_t>(rows)] + cost[rows - 1];
        if (total < best - kTie) {
          best = total;
          best_rows = rows;
        }
      }
      least_total_[i] = best;
      last_batch_[i] = best_rows;
    }
    return Read();
  }

  // What the longest row costs alone.
  std::int64_t LongestAlone() const {
    std::int64_t longest = 0;
    for (const Costs& of : classes_) longest = std::max(longest, costs_[of.at]);
    return longest;
  }

 private:
  struct Costs {
    std::size_t at = 0;          // in costs_, of one row
    std::int64_t most_rows = 0;  // that a batch that ends in this class may have
    std::int64_t first_row = 0;  // of the class
    bool mixes = true;
  };

  Partition Read() const {
    Partition partition;
    for (std::size_t i = by_row_.size(); i > 0; i -= static_cast<std::size_t>(partition.rows.back())) {
      partition.rows.push_back(last_batch_[i]);
      const std::int64_t cost = costs_[classes_[by_row_[i - 1]].at + static_cast<std::size_t>(last_batch_[i]) - 1];
      partition.longest = std::max(partition.longest, Duration(cost));
    }
    std::reverse(partition.rows.begin(), partition.rows.end());
    partition.total = Duration(least_total_.back());
    return partition;
  }

  std::vector<Costs> classes_;
  std::vector<std::int64_t> costs_;
  std::vector<std::size_t> by_row_;        // the class of each row
  std::vector<std::int64_t> least_total_;  // F, by the number of rows
  std::vector<std::int64_t> last_batch_;   // of the partition that F tells of, in rows
};

}  // namespace

Duration CostOf(BatchShape shape, const BatchTimes& times) {
  Duration takes = times.Of(shape);
  // Where nothing was measured, the tokens that are computed stand in for nanoseconds, and 256 of them for the launch of a batch.
  if (takes <= Duration::zero()) takes = Duration(256 + shape.rows * std::max<std::int64_t>(1, shape.length));
  const double seconds = Seconds(takes);
  const Duration waited_for = FromSeconds(seconds * seconds / 2 / kHorizonSeconds);
  // A little more: of partitions that cost the same, the one with fewer batches is the better.
  return takes + waited_for + Duration(2 * kTie);
}

Partition PartitionRows(std::span<const LengthClass> classes, const BatchTimes& times, int idle_workers) {
  if (classes.empty()) return {};
  Partitioning partitioning(classes, times);
  Partition best = partitioning.Within(kNever);
  if (idle_workers <= 1) return best;
  const auto lasts = [&](const Partition& of) { return std::max(of.longest, of.total / idle_workers); };
  if (best.longest <= best.total / idle_workers) return best;  // nothing has less to share out
  // Within `high` the workers' share is shorter than the longest batch, within `low` it is not.
  Duration low(partitioning.LongestAlone());
  Duration high = best.longest;
  while (high - low > high / 1000) {
    const Duration middle = low + (high - low) / 2;
    Partition within = partitioning.Within(middle.count());
    if (within.total / idle_workers < middle) {
      high = within.longest;
    } else {
      low = middle;
    }
    if (lasts(within) < lasts(best)) best = std::move(within);
  }
  return best;
}

}  // namespace headroom
