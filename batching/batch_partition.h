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

struct Partition {
  std::vector<std::int64_t> rows;  // of each batch, from the shortest rows to the longest
  Duration total{0};               // what the batches take, one after the other
  Duration longest{0};             // what the longest of them takes
};

// `classes` ascend in length.
//
// With one idle worker the partition of least total time, by dynamic programming over the rows in the order of their lengths:
//
//   F[i] = min over r of F[i − r] + T(r, length of row i)
//
// Batches of neighbours are enough: for given sizes, to give the longest batch the longest rows shortens every other one, as T
// grows with the length. Takes (rows × most_rows) steps. Of partitions that take equally long,
// one with the fewest batches, and those of the shortest rows the fullest.
//
// With more idle workers, k, the partition of the least max(longest batch, total ÷ k), to a thousandth: no schedule on k workers
// ends before that, and starting batches as workers become free ends within 2 − 1/k of it. The limit on the longest batch is
// found by bisection, as a tighter one never makes the total less.
Partition PartitionRows(std::span<const LengthClass> classes, const BatchTimes& times, int idle_workers);

}  // namespace headroom
