#include "batching/recovery.h"

#include <catch2/catch.hpp>

namespace headroom {
namespace {

TEST_CASE("after out of memory: halve, then alone, then wait for what others hold, or give up", "[recovery]") {
  struct Case {
    const char* what;
    OutOfMemoryCase failed;
    NextTry next;
  };
  const Bytes needs = MiB(10);
  const Case cases[] = {
      {"many rows", {.rows = 64}, NextTry::kHalves},
      {"two rows", {.rows = 2}, NextTry::kHalves},
      {"two rows that were alone", {.rows = 2, .was_alone = true}, NextTry::kHalves},
      {"one row beside others", {.rows = 1}, NextTry::kAlone},
      {"a neighbour holds it", {.was_alone = true, .needs = needs, .budget = MiB(9), .idle_budget = MiB(20)}, NextTry::kWaitAgain},
      {"nobody holds it", {.was_alone = true, .needs = needs, .budget = MiB(10), .idle_budget = MiB(20)}, NextTry::kGiveUp},
      {"it never fits", {.was_alone = true, .needs = needs, .budget = MiB(5), .idle_budget = MiB(9)}, NextTry::kGiveUp},
      {"too often",
       {.was_alone = true, .retries = kMostRetries, .needs = needs, .budget = MiB(9), .idle_budget = MiB(20)},
       NextTry::kGiveUp},
      {"memory is not told", {.was_alone = true}, NextTry::kGiveUp},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    CHECK(AfterOutOfMemory(c.failed) == c.next);
  }
}

TEST_CASE("after a model's error: halve until the guilty row is alone", "[recovery]") {
  CHECK(AfterModelError(64) == NextTry::kHalves);
  CHECK(AfterModelError(2) == NextTry::kHalves);
  CHECK(AfterModelError(1) == NextTry::kGiveUp);
}

}  // namespace
}  // namespace headroom
