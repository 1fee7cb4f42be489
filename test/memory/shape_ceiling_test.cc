#include "memory/shape_ceiling.h"

#include <catch2/catch.hpp>
#include <limits>

namespace headroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
const TimePoint kStart = TimePoint{} + seconds(1000);

TEST_CASE("a shape that failed has half its rows, which double with time until it may come back", "[ceiling]") {
  ShapeCeilings ceilings;
  CHECK(ceilings.MaxRows(128, kStart) == kNone);
  ceilings.Lower({16, 128}, kStart);
  CHECK(ceilings.count(kStart) == 1);
  struct Case {
    std::int64_t length;
    Duration later;
    std::int64_t rows;
  };
  const Case cases[] = {
      {64, seconds(0), kNone},  // shorter ones take less
      {128, seconds(0), 8},    {512, seconds(0), 8}, {128, milliseconds(9999), 8}, {128, seconds(10), kNone},
  };
  for (const Case& c : cases) {
    CAPTURE(c.length, Seconds(c.later));
    CHECK(ceilings.MaxRows(c.length, kStart + c.later) == c.rows);
  }
  CHECK(ceilings.count(kStart + seconds(10)) == 0);
}

TEST_CASE("the way back from several failures goes through every doubling", "[ceiling]") {
  ShapeCeilings ceilings;
  for (const std::int64_t rows : {16, 8, 4}) ceilings.Lower({rows, 128}, kStart);
  CHECK(ceilings.MaxRows(128, kStart) == 2);
  CHECK(ceilings.MaxRows(128, kStart + seconds(10)) == 4);
  CHECK(ceilings.MaxRows(128, kStart + seconds(20)) == 8);
  // One that fails again on the way back begins anew, with the top that it had.
  ceilings.Lower({8, 128}, kStart + seconds(20));
  CHECK(ceilings.MaxRows(128, kStart + seconds(20)) == 4);
  CHECK(ceilings.MaxRows(128, kStart + seconds(30)) == 8);
  CHECK(ceilings.MaxRows(128, kStart + seconds(40)) == kNone);
}

TEST_CASE("a longer length is held to the lowest ceiling below it", "[ceiling]") {
  ShapeCeilings ceilings;
  ceilings.Lower({16, 128}, kStart);
  ceilings.Lower({64, 512}, kStart);
  CHECK(ceilings.MaxRows(256, kStart) == 8);
  CHECK(ceilings.MaxRows(512, kStart) == 8);
}

TEST_CASE("one row has no ceiling", "[ceiling]") {
  ShapeCeilings ceilings;
  ceilings.Lower({1, 128}, kStart);
  CHECK(ceilings.MaxRows(128, kStart) == kNone);
  ceilings.Lower({2, 128}, kStart);
  ceilings.Lower({3, 128}, kStart);
  CHECK(ceilings.MaxRows(128, kStart) == 1);
}

}  // namespace
}  // namespace headroom
