#include "base/rate_limit.h"

#include <catch2/catch.hpp>

namespace headroom {
namespace {

using std::chrono::seconds;

TEST_CASE("one event in a while passes, and tells how many were held back", "[rate_limit]") {
  RateLimit limit(seconds(10));
  const TimePoint start{seconds(100)};
  CHECK(limit.Pass(start) == 0);
  CHECK_FALSE(limit.Pass(start).has_value());
  CHECK_FALSE(limit.Pass(start + seconds(9)).has_value());
  CHECK(limit.Pass(start + seconds(10)) == 2);
  CHECK_FALSE(limit.Pass(start + seconds(19)).has_value());
  CHECK(limit.Pass(start + seconds(1000)) == 1);
  CHECK(limit.Pass(start + seconds(2000)) == 0);
}

}  // namespace
}  // namespace headroom
