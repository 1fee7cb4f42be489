#include "bench/ideal/grouping.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace headroom {
namespace {

std::int64_t Rounded(std::int64_t length, const GroupLimits& limits) {
  return (length + limits.multiple - 1) / limits.multiple * limits.multiple;
}

std::vector<std::size_t> ByLength(std::span<const std::int64_t> lengths) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lengths[a] < lengths[b]; });
  return order;
}

}  // namespace

std::vector<RowGroup> LeastCostGroups(std::span<const std::int64_t> lengths, const GroupLimits& limits, const BatchCost& cost) {
  const std::vector<std::size_t> order = ByLength(lengths);
  // least[n]: the least cost of the n shortest rows; last[n]: how many rows the last group of that grouping has.
  std::vector<double> least(order.size() + 1, 0);
  std::vector<std::size_t> last(order.size() + 1, 0);
  for (std::size_t n = 1; n <= order.size(); ++n) {
    const std::int64_t length = Rounded(lengths[order[n - 1]], limits);
    least[n] = std::numeric_limits<double>::infinity();
    for (std::size_t rows = 1; rows <= std::min(n, static_cast<std::size_t>(limits.most_rows)); ++rows) {
      const double with = least[n - rows] + cost({static_cast<std::int64_t>(rows), length});
      if (with < least[n]) {
        least[n] = with;
        last[n] = rows;
      }
    }
  }
  std::vector<RowGroup> groups;
  for (std::size_t n = order.size(); n > 0; n -= last[n]) {
    RowGroup& group = groups.emplace_back();
    group.length = Rounded(lengths[order[n - 1]], limits);
    for (std::size_t i = n - last[n]; i < n; ++i) group.rows.push_back(order[i]);
  }
  return groups;
}

std::vector<RowGroup> EqualLengthGroups(std::span<const std::int64_t> lengths, const GroupLimits& limits) {
  std::vector<RowGroup> groups;
  for (const std::size_t row : ByLength(lengths)) {
    const std::int64_t length = Rounded(lengths[row], limits);
    if (groups.empty() || groups.back().length != length ||
        static_cast<std::int64_t>(groups.back().rows.size()) == limits.most_rows) {
      groups.emplace_back().length = length;
    }
    groups.back().rows.push_back(row);
  }
  return groups;
}

std::vector<RowGroup> SingleRowGroups(std::span<const std::int64_t> lengths, const GroupLimits& limits) {
  std::vector<RowGroup> groups;
  for (std::size_t row = 0; row < lengths.size(); ++row) groups.push_back({{row}, Rounded(lengths[row], limits)});
  return groups;
}

}  // namespace headroom
