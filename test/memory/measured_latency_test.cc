#include "memory/measured_latency.h"

#include <catch2/catch.hpp>
#include <vector>

namespace headroom {
namespace {

using std::chrono::milliseconds;

Measurement Point(std::int64_t rows, int ms) { return {rows, MiB(rows), milliseconds(ms), MiB(rows)}; }

TEST_CASE("a run should take as long as the quickest measured batch that is no smaller", "[measured_latency]") {
  const std::vector<LengthCurve> curves = {
      {32, {Point(1, 2), Point(2, 3), Point(8, 9)}, 0, {0}, false},
      {64, {Point(1, 4), Point(2, 5), Point(8, 20)}, 0, {0}, false},
      {128, {}, 1, MiB(9), false},  // not even one row fitted
  };
  struct Case {
    BatchShape shape;
    int ms;
  };
  const std::vector<Case> cases = {
      {{1, 32}, 2},   {{1, 8}, 2},  {{2, 32}, 3},  {{3, 32}, 9},
      {{8, 33}, 20},  {{1, 64}, 4}, {{8, 64}, 20}, {{16, 64}, 40},  // twice the largest
      {{8, 128}, 40},                                               // the same
      {{1, 128}, 20},                                               // beyond what was measured, but less work than the slowest
  };
  for (const Case& c : cases) {
    CAPTURE(c.shape.rows, c.shape.length);
    CHECK(MeasuredLatency(curves, c.shape) == milliseconds(c.ms));
  }
}

TEST_CASE("fixed shapes have a latency by their rows", "[measured_latency]") {
  const std::vector<LengthCurve> curves = {{0, {Point(1, 2), Point(4, 6)}, 0, {0}, false}};
  CHECK(MeasuredLatency(curves, {1, 0}) == milliseconds(2));
  CHECK(MeasuredLatency(curves, {3, 0}) == milliseconds(6));
  CHECK(MeasuredLatency(curves, {8, 0}) == milliseconds(12));
}

TEST_CASE("where nothing was measured nothing is expected", "[measured_latency]") {
  CHECK(MeasuredLatency({}, {4, 32}) == Duration::zero());
}

}  // namespace
}  // namespace headroom
