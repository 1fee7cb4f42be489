// Where waiting rows, in the order of their lengths, are cut into batches, so that they take the least time. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "batching/latency_model.h"

namespace headroom {

// Rows that are padded to the same length when no longer one is among them.
struct LengthClass {
  std::int64_t length = 0;     // padded
  std::int64_t rows = 0;       // at least 1
  std::int64_t most_rows = 1;  // that a batch padded to this length may have; at least 1
  bool mixes = true;           // whether shorter rows may be padded to this length
};

// What a batch costs: the time T that it takes, and T² ÷ 2H for those that it keeps waiting, with H = 4 s.
//
// Who comes while it runs waits for half of it on average. So a batch is not made larger where it takes long already and little is
// saved: where a launch takes 3 ms and rows take the same time in any batch, those of √(2 × 4 s × 3 ms) = 155 ms cost least, and
// 2 % of the time goes into launches. What takes a few milliseconds is hardly touched.
Duration CostOf(BatchShape shape, const BatchTimes& times);

struct Partition {
  std::vector<std::int64_t> rows;  // of each batch, from the shortest rows to the longest
  Duration total{0};               // what the batches cost together
  Duration longest{0};             // what the most expensive of them does
};

// `classes` ascend in length.
//
// With one idle worker the partition of the least total cost, by dynamic programming over the rows in the order of their lengths:
//
//   F[i] = min over r of F[i − r] + cost(r, length of row i)
//
// Batches of neighbours are enough: for given sizes, to give the longest batch the longest rows shortens every other one, as the
// cost grows with the length. Takes (rows × most_rows) steps. Of partitions that cost the same, one with the fewest batches, and
// those of the shortest rows the fullest.
//
// With more idle workers, k, the partition of the least max(longest, total ÷ k), to a thousandth: no schedule on k workers
// ends before that, and starting batches as workers become free ends within 2 − 1/k of it. The limit on the longest batch is
// found by bisection, as a tighter one never makes the total less.
Partition PartitionRows(std::span<const LengthClass> classes, const BatchTimes& times, int idle_workers);

}  // namespace headroom
