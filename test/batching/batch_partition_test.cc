#include "batching/batch_partition.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <optional>
#include <random>

namespace headroom {
namespace {

using std::chrono::microseconds;
using Sizes = std::vector<std::int64_t>;

struct Point {
  std::int64_t length;
  std::int64_t rows;
  std::int64_t us;
};

CalibratedLatency Measured(const std::vector<Point>& points) {
  std::vector<LengthCurve> curves;
  for (const Point& point : points) {
    if (curves.empty() || curves.back().length != point.length) {
      curves.emplace_back();
      curves.back().length = point.length;
    }
    curves.back().points.push_back({point.rows, Bytes{1}, microseconds(point.us), Bytes{1}});
  }
  return CalibratedLatency(curves);
}

// 100 µs a batch and 1 µs a token.
CalibratedLatency Linear() {
  std::vector<Point> points;
  for (const std::int64_t length : {8, 16, 32, 512}) {
    for (const std::int64_t rows : {1, 64}) points.push_back({length, rows, 100 + rows * length});
  }
  return Measured(points);
}

TEST_CASE("rows are cut where the batches take the least time", "[partition]") {
  struct Case {
    const char* what;
    std::vector<LengthClass> classes;
    int idle_workers;
    Sizes rows;
  };
  const auto c = GENERATE(values<Case>({
      {"no row", {}, 1, {}},
      {"one row", {{8, 1, 64}}, 1, {1}},
      {"alike", {{8, 10, 64}}, 1, {10}},
      {"alike, eight at most: the remainder last", {{8, 10, 8}}, 1, {8, 2}},
      {"a launch costs more than 8 tokens of padding for 12 rows", {{8, 12, 64}, {16, 1, 64}}, 1, {13}},
      {"and less than for 14", {{8, 14, 64}, {16, 1, 64}}, 1, {14, 1}},
      {"one long row does not pad the others", {{8, 7, 64}, {512, 1, 64}}, 1, {7, 1}},
      {"a batch of a longer length has room for fewer", {{8, 3, 64}, {16, 3, 2}}, 1, {3, 2, 1}},
      {"lengths that do not mix", {{8, 3, 64, false}, {16, 3, 64, false}}, 1, {3, 3}},
      {"ten rows do not make one batch beside an idle worker", {{32, 10, 64}}, 2, {5, 5}},
      {"nor five", {{32, 5, 64}}, 2, {3, 2}},
      {"three idle workers", {{32, 9, 64}}, 3, {3, 3, 3}},
      {"one long row is what the others end with", {{8, 30, 64}, {512, 1, 64}}, 2, {30, 1}},
      {"no more is shared out than there are workers for", {{8, 64, 8}}, 2, {8, 8, 8, 8, 8, 8, 8, 8}},
  }));
  CAPTURE(c.what);
  const CalibratedLatency latency = Linear();
  CHECK(PartitionRows(c.classes, BatchTimes(latency), c.idle_workers).rows == c.rows);
}

TEST_CASE("a batch costs its time, and half of it to who comes meanwhile", "[partition]") {
  const CalibratedLatency latency = Measured({{8, 1, 1000}, {8, 1000, 1000000}});
  const BatchTimes times(latency);
  struct Case {
    std::int64_t rows;  // a millisecond each
    std::int64_t us;
  };
  for (const auto& [rows, us] : std::vector<Case>{{1, 1000}, {100, 101250}, {1000, 1125000}}) {
    CAPTURE(rows);
    CHECK(std::chrono::round<microseconds>(CostOf({rows, 8}, times)).count() == us);
  }
}

TEST_CASE("a long batch is not made longer for a launch", "[partition]") {
  // A launch of 3 ms and 6.4 ms a row: 155 ms are 23 rows.
  const CalibratedLatency latency = Measured({{32, 1, 9400}, {32, 64, 412600}});
  const Sizes sizes = PartitionRows(std::vector<LengthClass>{{32, 230, 64}}, BatchTimes(latency), 1).rows;
  CHECK(sizes == Sizes(10, 23));
}

TEST_CASE("what a partition costs is told", "[partition]") {
  const CalibratedLatency latency = Linear();
  const std::vector<LengthClass> classes = {{8, 7, 64}, {512, 1, 64}};
  const Partition partition = PartitionRows(classes, BatchTimes(latency), 1);
  CHECK(std::chrono::round<microseconds>(partition.total).count() == 156 + 612);
  CHECK(std::chrono::round<microseconds>(partition.longest).count() == 612);
}

TEST_CASE("where nothing was measured, tokens and launches are counted", "[partition]") {
  const CalibratedLatency nothing({LengthCurve{}});
  const auto rows = [&](std::vector<LengthClass> classes) { return PartitionRows(classes, BatchTimes(nothing), 1).rows; };
  CHECK(rows({{8, 3, 64}, {16, 1, 64}}) == Sizes{4});
  CHECK(rows({{8, 3, 64}, {512, 1, 64}}) == Sizes{3, 1});
}

// Up to seven rows, and every way to make batches of them, neighbours or not.
class SmallCase {
 public:
  explicit SmallCase(std::mt19937_64& random) : random_(random) {
    std::vector<Point> points;
    std::int64_t us = 0;
    for (const std::int64_t length : {8, 16, 24, 32}) {
      us = Below(200000);
      for (std::int64_t rows = 1; rows <= 7; ++rows) {
        us += Below(100000);
        points.push_back({length, rows, 1 + us});
      }
    }
    latency_.emplace(Measured(points));
    const std::int64_t count = 1 + Below(7);
    for (std::int64_t i = 0; i < count; ++i) lengths_.push_back(8 * (1 + Below(4)));
    std::sort(lengths_.begin(), lengths_.end());
    mixes_ = Below(4) != 0;
    // Longer rows never allow for more, as memory grows with the length.
    std::int64_t most = 1 + Below(7);
    for (auto at = lengths_.begin(); at != lengths_.end();) {
      const auto end = std::upper_bound(at, lengths_.end(), *at);
      classes_.push_back({*at, end - at, most, mixes_});
      most = std::max<std::int64_t>(1, most - Below(3));
      at = end;
    }
  }

  void Check(int workers) {
    const Partition partition = PartitionRows(classes_, times(), workers);
    std::int64_t first = 0;
    Duration total{0};
    Duration longest{0};
    for (const std::int64_t rows : partition.rows) {
      REQUIRE(rows >= 1);
      const Duration cost = Cost({lengths_.begin() + first, lengths_.begin() + first + rows});
      REQUIRE(cost < kForbidden);
      total += cost;
      longest = std::max(longest, cost);
      first += rows;
    }
    REQUIRE(first == static_cast<std::int64_t>(lengths_.size()));
    const Duration lasts = std::max(longest, total / workers);
    const Duration least = LeastOfAll(workers);
    CAPTURE(workers, lasts.count(), least.count());
    // What counts as a tie, for each batch, and a thousandth where the limit on a batch is searched for.
    REQUIRE(lasts <= least + std::chrono::nanoseconds(1500) + (workers > 1 ? least / 1000 : Duration{0}));
    // As many batches run from each worker's hand to the next free one: the promise of the header.
    REQUIRE(Schedule(partition.rows, workers) <= 2 * least + std::chrono::nanoseconds(3000) + least / 500);
  }

 private:
  static constexpr Duration kForbidden = std::chrono::hours(1);

  std::int64_t Below(std::int64_t bound) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(bound)); }
  BatchTimes times() const { return BatchTimes(*latency_); }

  Duration Cost(const std::vector<std::int64_t>& batch) const {
    const std::int64_t longest = *std::max_element(batch.begin(), batch.end());
    if (!mixes_ && *std::min_element(batch.begin(), batch.end()) != longest) return kForbidden;
    const auto of = std::find_if(classes_.begin(), classes_.end(), [&](const LengthClass& c) { return c.length == longest; });
    const auto rows = static_cast<std::int64_t>(batch.size());
    return rows > of->most_rows ? kForbidden : CostOf({rows, longest}, times());
  }

  Duration LeastOfAll(int workers) const {
    Duration least = std::chrono::hours(1000);
    std::vector<std::vector<std::int64_t>> batches;
    const std::function<void(std::size_t)> place = [&](std::size_t row) {
      if (row == lengths_.size()) {
        Duration total{0};
        Duration longest{0};
        for (const auto& batch : batches) {
          total += Cost(batch);
          longest = std::max(longest, Cost(batch));
        }
        least = std::min(least, std::max(longest, total / workers));
        return;
      }
      for (std::size_t i = 0; i < batches.size(); ++i) {
        batches[i].push_back(lengths_[row]);
        place(row + 1);
        batches[i].pop_back();
      }
      batches.push_back({lengths_[row]});
      place(row + 1);
      batches.pop_back();
    };
    place(0);
    return least;
  }

  // When the last batch ends if each starts as soon as a worker is free.
  Duration Schedule(const Sizes& sizes, int workers) const {
    std::vector<Duration> free(static_cast<std::size_t>(workers), Duration{0});
    std::int64_t first = 0;
    for (const std::int64_t rows : sizes) {
      *std::min_element(free.begin(), free.end()) += Cost({lengths_.begin() + first, lengths_.begin() + first + rows});
      first += rows;
    }
    return *std::max_element(free.begin(), free.end());
  }

  std::mt19937_64& random_;
  std::optional<CalibratedLatency> latency_;
  std::vector<std::int64_t> lengths_;
  std::vector<LengthClass> classes_;
  bool mixes_ = true;
};

TEST_CASE("no other way to make batches is quicker", "[partition][property]") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int repeat = 0; repeat < 6000; ++repeat) {
    CAPTURE(repeat);
    SmallCase(random).Check(1 + repeat % 3);
  }
}

}  // namespace
}  // namespace headroom
