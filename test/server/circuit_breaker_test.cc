#include "server/circuit_breaker.h"

#include <catch2/catch.hpp>
#include <string>

#include "test/fakes/manual_clock.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

BreakerOptions ByKey() {
  BreakerOptions options;
  options.caller_key = "x-caller";
  return options;
}

bool Passes(CircuitBreaker& breaker, const std::string& caller) { return std::holds_alternative<BreakerPass>(breaker.Ask(caller)); }

// Asks `count` times, and judges each pass; how many passed.
int Send(CircuitBreaker& breaker, const std::string& caller, int count, bool abnormal) {
  int passed = 0;
  for (int i = 0; i < count; ++i) {
    auto answer = breaker.Ask(caller);
    if (auto* const pass = std::get_if<BreakerPass>(&answer)) {
      pass->Judge(abnormal);
      ++passed;
    }
  }
  return passed;
}

TEST_CASE("a caller whose requests are mostly abnormal is refused, others are not", "[circuit_breaker]") {
  ManualClock clock;
  CircuitBreaker breaker(ByKey(), clock);
  CHECK(Send(breaker, "broken", 100, true) == 20);
  CHECK(Send(breaker, "sound", 100, false) == 100);
  CHECK(breaker.open_callers() == 1);
  CHECK(breaker.refusals() == 80);
}

TEST_CASE("fewer than half are no reason, nor are a few", "[circuit_breaker]") {
  ManualClock clock;
  CircuitBreaker breaker(ByKey(), clock);
  for (int i = 0; i < 200; ++i) {
    CHECK(Send(breaker, "mixed", 2, false) == 2);
    CHECK(Send(breaker, "mixed", 1, true) == 1);
  }
  CHECK(Send(breaker, "new", 19, true) == 19);
  CHECK(breaker.open_callers() == 0);
}

TEST_CASE("what is long ago does not count", "[circuit_breaker]") {
  ManualClock clock;
  CircuitBreaker breaker(ByKey(), clock);
  CHECK(Send(breaker, "c", 19, true) == 19);
  clock.Advance(seconds(31));
  CHECK(Send(breaker, "c", 19, true) == 19);
  CHECK(breaker.open_callers() == 0);
  // Good requests of a while ago do not excuse the bad ones of now either.
  CHECK(Send(breaker, "d", 1000, false) == 1000);
  clock.Advance(seconds(31));
  CHECK(Send(breaker, "d", 30, true) == 20);
}

TEST_CASE("a refusal tells how long it lasts, and then one request is tried", "[circuit_breaker]") {
  ManualClock clock;
  CircuitBreaker breaker(ByKey(), clock);
  Send(breaker, "c", 20, true);
  clock.Advance(seconds(3));
  CHECK(std::get<Duration>(breaker.Ask("c")) == seconds(7));
  clock.Advance(milliseconds(6999));
  CHECK_FALSE(Passes(breaker, "c"));
  clock.Advance(milliseconds(1));

  auto trial = breaker.Ask("c");
  REQUIRE(std::holds_alternative<BreakerPass>(trial));
  // One at a time.
  CHECK(std::get<Duration>(breaker.Ask("c")) == seconds(1));
  std::get<BreakerPass>(trial).Judge(/*abnormal=*/true);
  CHECK(std::get<Duration>(breaker.Ask("c")) == seconds(10));
  CHECK(breaker.open_callers() == 1);

  clock.Advance(seconds(10));
  CHECK(Send(breaker, "c", 1, false) == 1);
  CHECK(breaker.open_callers() == 0);
  // And the past is forgotten.
  CHECK(Send(breaker, "c", 19, true) == 19);
}

TEST_CASE("a trial of which nothing is known leaves the turn to the next", "[circuit_breaker]") {
  ManualClock clock;
  CircuitBreaker breaker(ByKey(), clock);
  Send(breaker, "c", 20, true);
  clock.Advance(seconds(10));
  { const auto trial = breaker.Ask("c"); }
  CHECK(breaker.open_callers() == 1);
  CHECK(Send(breaker, "c", 1, false) == 1);
  CHECK(breaker.open_callers() == 0);
}

TEST_CASE("a pass from before a caller was refused changes nothing", "[circuit_breaker]") {
  ManualClock clock;
  CircuitBreaker breaker(ByKey(), clock);
  auto early = breaker.Ask("c");
  Send(breaker, "c", 20, true);
  std::get<BreakerPass>(early).Judge(/*abnormal=*/false);
  CHECK_FALSE(Passes(breaker, "c"));
}

TEST_CASE("without a key in the options or in the request, everything passes", "[circuit_breaker]") {
  ManualClock clock;
  CircuitBreaker unset(BreakerOptions{}, clock);
  CHECK(Send(unset, "broken", 100, true) == 100);
  CircuitBreaker breaker(ByKey(), clock);
  CHECK(Send(breaker, "", 100, true) == 100);
  CHECK(breaker.open_callers() == 0);
}

TEST_CASE("as many callers are remembered as the options say, the most recent", "[circuit_breaker]") {
  ManualClock clock;
  BreakerOptions options = ByKey();
  options.most_callers = 3;
  CircuitBreaker breaker(options, clock);
  for (const char* const caller : {"a", "b", "c"}) Send(breaker, caller, 20, true);
  CHECK(breaker.open_callers() == 3);
  CHECK_FALSE(Passes(breaker, "a"));  // seen again: "b" is the oldest now
  CHECK(Send(breaker, "d", 1, false) == 1);
  CHECK(breaker.open_callers() == 2);
  CHECK_FALSE(Passes(breaker, "a"));
  CHECK(Passes(breaker, "b"));
}

TEST_CASE("of a long name the first bytes count", "[circuit_breaker]") {
  ManualClock clock;
  CircuitBreaker breaker(ByKey(), clock);
  const std::string name(CircuitBreaker::kCallerBytes, 'n');
  Send(breaker, name + "1", 20, true);
  CHECK_FALSE(Passes(breaker, name + "2"));
  CHECK(Passes(breaker, name.substr(1)));
}

}  // namespace
}  // namespace headroom
