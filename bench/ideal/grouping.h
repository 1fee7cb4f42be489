// Which rows share a batch when all of them, and how long every batch takes, are known beforehand.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/device.h"

namespace headroom {

// What a batch costs; must not fall with the length.
using BatchCost = std::function<double(BatchShape)>;

struct RowGroup {
  std::vector<std::size_t> rows;  // indexes into the lengths
  std::int64_t length = 0;        // of the longest, rounded up
};

struct GroupLimits {
  std::int64_t most_rows = 64;
  std::int64_t multiple = 1;  // a group is padded to a multiple of this
};

// Groups whose costs add up to the least of all ways to group the rows. Exact: some best grouping has no row of a group between two
// of another when they are sorted by length, and the best of those is found by dynamic programming in rows × most_rows steps.
std::vector<RowGroup> LeastCostGroups(std::span<const std::int64_t> lengths, const GroupLimits& limits, const BatchCost& cost);

// Rows of the same (rounded) length together, as many as may be: nothing is padded.
std::vector<RowGroup> EqualLengthGroups(std::span<const std::int64_t> lengths, const GroupLimits& limits);

// Every row alone.
std::vector<RowGroup> SingleRowGroups(std::span<const std::int64_t> lengths, const GroupLimits& limits);

}  // namespace headroom
