#include "batching/bucket_tuning.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace headroom {
namespace {

// A length that may be a bucket, and the rows that it would hold if it were the first.
struct Candidate {
  std::int64_t length = 0;
  double rows_up_to = 0;
};

std::vector<Candidate> CandidatesOf(const LengthCounts& lengths, const TuningLimits& limits) {
  std::vector<Candidate> candidates;
  double rows = 0;
  for (const auto& [length, count] : lengths) {
    if (length > limits.reach) break;
    rows += count;
    const std::int64_t rounded = (length + limits.multiple - 1) / limits.multiple * limits.multiple;
    const std::int64_t bucket = std::min(limits.reach, rounded);
    if (candidates.empty() || candidates.back().length != bucket) candidates.push_back({bucket, 0});
    candidates.back().rows_up_to = rows;
  }
  if (candidates.empty() || candidates.back().length != limits.reach) candidates.push_back({limits.reach, rows});
  return candidates;
}

// The table of BestLadder, a row for each number of buckets. Only what leads back is kept of earlier rows.
class LadderTable {
 public:
  explicit LadderTable(std::vector<Candidate> candidates) : candidates_(std::move(candidates)) {
    for (const Candidate& c : candidates_) cost_.push_back(static_cast<double>(c.length) * c.rows_up_to);
  }

  std::size_t buckets() const { return before_.size() + 1; }
  std::size_t candidates() const { return candidates_.size(); }
  // Of all rows, with so many buckets.
  double cost() const { return cost_.back(); }

  void AddBucket() {
    std::vector<double> next(candidates_.size(), std::numeric_limits<double>::infinity());
    auto& before = before_.emplace_back(candidates_.size(), 0);
    Fill(next, before, {buckets() - 1, candidates_.size()}, {buckets() - 2, candidates_.size() - 1});
    cost_ = std::move(next);
  }

  // The ladder of the first `count` rows of the table.
  std::vector<std::int64_t> Ladder(std::size_t count) const {
    std::vector<std::int64_t> ladder;
    std::size_t at = candidates_.size() - 1;
    for (std::size_t left = count; left > 0; --left) {
      ladder.push_back(candidates_[at].length);
      if (left > 1) at = before_[left - 2][at];
    }
    std::reverse(ladder.begin(), ladder.end());
    return ladder;
  }

 private:
  struct Range {
    std::size_t from = 0;
    std::size_t to = 0;  // beyond the last
  };

  // Fills `wanted`, of which the best predecessors lie in `allowed`: the middle first, which halves both for either side.
  void Fill(std::vector<double>& next, std::vector<std::uint32_t>& before, Range wanted, Range allowed) const {
    if (wanted.from >= wanted.to) return;
    const std::size_t j = wanted.from + (wanted.to - wanted.from) / 2;
    std::size_t best = allowed.from;
    for (std::size_t i = allowed.from; i < std::min(j, allowed.to); ++i) {
      const double cost =
          cost_[i] + static_cast<double>(candidates_[j].length) * (candidates_[j].rows_up_to - candidates_[i].rows_up_to);
      if (cost >= next[j]) continue;
      next[j] = cost;
      best = i;
    }
    before[j] = static_cast<std::uint32_t>(best);
    Fill(next, before, {wanted.from, j}, {allowed.from, best + 1});
    Fill(next, before, {j + 1, wanted.to}, {best, allowed.to});
  }

  const std::vector<Candidate> candidates_;
  std::vector<double> cost_;                        // by the last bucket
  std::vector<std::vector<std::uint32_t>> before_;  // by buckets from 2 on, then by the last: the last but one
};

}  // namespace

LengthCounts BatchedLengths(const LengthCounts& lengths, const SequenceSpec& sequence) {
  LengthCounts batched;
  const std::int64_t last = sequence.buckets.back();
  double cut = 0;
  for (const LengthCount& of : lengths) {
    if (of.length <= last) {
      batched.push_back(of);
      continue;
    }
    const auto tier =
        std::find_if(sequence.tiers.begin(), sequence.tiers.end(), [&](const Tier& t) { return of.length <= t.up_to; });
    if (tier != sequence.tiers.end() && tier->action == TierAction::kTruncate) cut += of.rows;
  }
  if (cut <= 0) return batched;
  if (batched.empty() || batched.back().length != last) batched.push_back({last, 0});
  batched.back().rows += cut;
  return batched;
}

LadderCost CostOf(const LengthCounts& lengths, const std::vector<std::int64_t>& buckets) {
  LadderCost cost;
  auto bucket = buckets.begin();
  for (const auto& [length, rows] : lengths) {
    while (bucket != buckets.end() && *bucket < length) ++bucket;
    if (bucket == buckets.end()) break;
    cost.useful_tokens += static_cast<double>(length) * rows;
    cost.computed_tokens += static_cast<double>(*bucket) * rows;
  }
  return cost;
}

std::vector<std::int64_t> BestLadder(const LengthCounts& lengths, const TuningLimits& limits) {
  LadderTable table(CandidatesOf(lengths, limits));
  const std::size_t most = std::min(limits.most_buckets, table.candidates());
  std::size_t best = 1;
  double best_cost = table.cost();
  while (table.buckets() < most) {
    table.AddBucket();
    if (table.cost() >= best_cost) break;  // another bucket is worth no more than the one before it
    best_cost = table.cost();
    best = table.buckets();
  }
  return table.Ladder(best);
}

LadderAdvice AdviseLadder(const LengthCounts& lengths, const std::vector<std::int64_t>& buckets, std::size_t most_buckets,
                          std::int64_t multiple) {
  LadderAdvice advice;
  advice.buckets = buckets;
  advice.cost = CostOf(lengths, buckets);
  advice.proposed = BestLadder(lengths, {buckets.back(), most_buckets, multiple});
  advice.proposed_cost = CostOf(lengths, advice.proposed);
  // That the present one has lengths which may not be proposed, or more buckets, is no reason to make it worse.
  if (advice.proposed_cost.computed_tokens >= advice.cost.computed_tokens) {
    advice.proposed = advice.buckets;
    advice.proposed_cost = advice.cost;
  }
  return advice;
}

}  // namespace headroom
