// Which ladder of buckets a traffic is best padded to. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model_spec.h"

namespace headroom {

// So many rows have this true length.
struct LengthCount {
  std::int64_t length = 0;  // ≥ 1
  double rows = 0;          // above 0; of a distribution, a share

  friend bool operator==(const LengthCount&, const LengthCount&) = default;
};

// Ascending in length, each length once.
using LengthCounts = std::vector<LengthCount>;

// What rows cost that are each padded to the least bucket that holds them.
struct LadderCost {
  double useful_tokens = 0;
  double computed_tokens = 0;

  // 0 where nothing is computed.
  double useful_share() const { return computed_tokens > 0 ? useful_tokens / computed_tokens : 0; }
};

// The rows of `lengths` that run in batches of a bucket, by the length that is run: those that are cut have the last bucket's. Left
// out are those that run alone, which no ladder pads, and those that are refused.
LengthCounts BatchedLengths(const LengthCounts& lengths, const SequenceSpec& sequence);

// `buckets` ascend. Rows beyond the last one count for nothing.
LadderCost CostOf(const LengthCounts& lengths, const std::vector<std::int64_t>& buckets);

struct TuningLimits {
  std::int64_t reach = 0;        // the last bucket: the longest length that must be served in a batch
  std::size_t most_buckets = 1;  // ≥ 1
  std::int64_t multiple = 8;     // every other bucket is a multiple of it; 1: any length
};

// The ladder of at most so many buckets of which the rows up to `reach` cost the fewest computed tokens; of equally good ones one
// with the fewest buckets. Ascending, `reach` last.
//
// Exact, as far as sums of the counts are exact in a double: always where they are whole and their tokens stay below 2^53. With n
// lengths that may be buckets (those that occur, rounded up) and W(j) the rows up to the j-th of them, c(j),
//
//   F(1, j) = c(j) W(j)
//   F(b, j) = min over i < j of F(b−1, i) + c(j) (W(j) − W(i))
//
// is what rows up to c(j) cost with b buckets, c(j) the last: no bucket between two of these lengths is as good as the lower one.
// The best i never falls as j grows, since for i < i' and j < j' it is c(j) (W(j) − W(i)) + c(j') (W(j') − W(i')) ≤
// c(j') (W(j') − W(i)) + c(j) (W(j) − W(i')); so each row of the table is filled by halves in n log n steps: k n log n in all, and
// 4 k n bytes. 16,000 lengths and 64 buckets take some 80 ms, what a server usually has far below a millisecond.
std::vector<std::int64_t> BestLadder(const LengthCounts& lengths, const TuningLimits& limits);

// A ladder as it is, and the best one of the same reach.
struct LadderAdvice {
  std::vector<std::int64_t> buckets;
  LadderCost cost;
  std::vector<std::int64_t> proposed;  // `buckets` themselves where none is better
  LadderCost proposed_cost;

  // Of the tokens computed now, the share that would not be; 0 where none is better.
  double saves() const { return cost.computed_tokens > 0 ? 1 - proposed_cost.computed_tokens / cost.computed_tokens : 0; }
};

// `lengths` as BatchedLengths makes them.
LadderAdvice AdviseLadder(const LengthCounts& lengths, const std::vector<std::int64_t>& buckets, std::size_t most_buckets,
                          std::int64_t multiple = 8);

}  // namespace headroom
