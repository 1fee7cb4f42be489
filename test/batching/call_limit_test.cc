#include "batching/call_limit.h"

#include <catch2/catch.hpp>

namespace headroom {
namespace {

TEST_CASE("so many calls may be inside, and each gives its place back", "[call_limit]") {
  CallLimit limit(2);
  std::optional<CallPlace> first = limit.Enter();
  CallPlace second = limit.Enter().value();
  CHECK_FALSE(limit.Enter().has_value());
  CHECK_FALSE(limit.Enter().has_value());
  CHECK(limit.inside() == 2);
  first.reset();
  CHECK(limit.inside() == 1);
  second = limit.Enter().value();  // the place before is given back
  CHECK(limit.inside() == 1);
  CHECK(limit.Enter().has_value());
}

TEST_CASE("without a limit calls are counted all the same", "[call_limit]") {
  CallLimit limit(0);
  const auto one = limit.Enter();
  const auto two = limit.Enter();
  CHECK(two.has_value());
  CHECK(limit.inside() == 2);
}

}  // namespace
}  // namespace headroom
