#include "bench/ideal/grouping.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <random>

namespace headroom {
namespace {

using Lengths = std::vector<std::int64_t>;

// Each group's lengths, ascending, and the groups by their padded length.
std::vector<std::pair<std::int64_t, Lengths>> Told(const std::vector<RowGroup>& groups, const Lengths& lengths) {
  std::vector<std::pair<std::int64_t, Lengths>> told;
  for (const RowGroup& group : groups) {
    auto& [length, rows] = told.emplace_back();
    length = group.length;
    for (const std::size_t row : group.rows) rows.push_back(lengths[row]);
    std::sort(rows.begin(), rows.end());
  }
  std::sort(told.begin(), told.end());
  return told;
}

double PerToken(BatchShape shape) { return 10 + static_cast<double>(shape.rows * shape.length); }

double CostOf(const std::vector<RowGroup>& groups, const BatchCost& cost) {
  double sum = 0;
  for (const RowGroup& group : groups) sum += cost({static_cast<std::int64_t>(group.rows.size()), group.length});
  return sum;
}

TEST_CASE("near lengths share a batch, far ones do not", "[grouping]") {
  const Lengths lengths = {100, 8, 9, 101, 10};
  using Groups = std::vector<std::pair<std::int64_t, Lengths>>;
  CHECK(Told(LeastCostGroups(lengths, {64, 1}, PerToken), lengths) == Groups{{10, {8, 9, 10}}, {101, {100, 101}}});
  CHECK(Told(LeastCostGroups(lengths, {2, 1}, PerToken), lengths).size() == 3);
  CHECK(LeastCostGroups({}, {64, 1}, PerToken).empty());
}

TEST_CASE("a group is padded to a multiple", "[grouping]") {
  const Lengths lengths = {9, 16, 17};
  for (const auto& groups :
       {EqualLengthGroups(lengths, {64, 8}), LeastCostGroups(lengths, {64, 8}, PerToken), SingleRowGroups(lengths, {64, 8})}) {
    for (const RowGroup& group : groups) CHECK(group.length % 8 == 0);
  }
  CHECK(EqualLengthGroups(lengths, {64, 8}).size() == 2);
}

TEST_CASE("rows of one length share batches of the most rows", "[grouping]") {
  const Lengths lengths = {5, 7, 5, 5, 7, 5, 5};
  using Groups = std::vector<std::pair<std::int64_t, Lengths>>;
  CHECK(Told(EqualLengthGroups(lengths, {3, 1}), lengths) == Groups{{5, {5, 5}}, {5, {5, 5, 5}}, {7, {7, 7}}});
}

// The least cost of all ways to put rows [next, …) into groups, those that are there or new ones.
double LeastOfAll(const Lengths& lengths, std::size_t next, std::vector<Lengths>& groups, std::int64_t most_rows,
                  const BatchCost& cost) {
  if (next == lengths.size()) {
    double sum = 0;
    for (const Lengths& group : groups)
      sum += cost({static_cast<std::int64_t>(group.size()), *std::max_element(group.begin(), group.end())});
    return sum;
  }
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (static_cast<std::int64_t>(groups[i].size()) == most_rows) continue;
    groups[i].push_back(lengths[next]);
    least = std::min(least, LeastOfAll(lengths, next + 1, groups, most_rows, cost));
    groups[i].pop_back();
  }
  groups.push_back({lengths[next]});
  least = std::min(least, LeastOfAll(lengths, next + 1, groups, most_rows, cost));
  groups.pop_back();
  return least;
}

TEST_CASE("no grouping costs less, and every row is in one group", "[grouping]") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int round = 0; round < 300; ++round) {
    Lengths lengths(static_cast<std::size_t>(draw(1, 7)));
    for (std::int64_t& length : lengths) length = draw(1, 12);
    // Any cost that does not fall with the length: by rows it may do what it likes.
    double table[8][13] = {};
    for (auto& by_length : table) {
      double now = 0;
      for (double& cost : by_length) cost = now += static_cast<double>(draw(0, 5));
    }
    const BatchCost cost = [&table](BatchShape shape) { return table[shape.rows][shape.length]; };
    const std::int64_t most_rows = draw(1, 7);
    const std::vector<RowGroup> groups = LeastCostGroups(lengths, {most_rows, 1}, cost);
    std::vector<Lengths> none;
    CHECK(CostOf(groups, cost) == LeastOfAll(lengths, 0, none, most_rows, cost));
    std::vector<int> seen(lengths.size(), 0);
    for (const RowGroup& group : groups) {
      CHECK(static_cast<std::int64_t>(group.rows.size()) <= most_rows);
      std::int64_t longest = 0;
      for (const std::size_t row : group.rows) {
        ++seen[row];
        longest = std::max(longest, lengths[row]);
      }
      CHECK(group.length == longest);
    }
    CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  }
}

}  // namespace
}  // namespace headroom
