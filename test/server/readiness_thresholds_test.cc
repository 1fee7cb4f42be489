#include "server/readiness_thresholds.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

namespace headroom {
namespace {

using std::chrono::milliseconds;

// So many looks at the same figures, and what is strained after them.
struct Looks {
  int count;
  ReadinessFigures figures;
  bool strained;
};

ReadinessFigures Waiting(int ms) { return {0.9, milliseconds(ms), std::nullopt}; }
ReadinessFigures Took(std::optional<int> ms) {
  return {0.9, Duration::zero(), ms ? std::optional<Duration>(milliseconds(*ms)) : std::nullopt};
}
ReadinessFigures Free(std::optional<double> share) { return {share, Duration::zero(), std::nullopt}; }

TEST_CASE("a threshold is passed by two looks in a row and left by ten that are well within", "[readiness]") {
  struct Case {
    const char* what;
    ReadinessOptions options;
    StrainKind kind;
    std::vector<Looks> looks;
  };
  const std::vector<Case> cases = {
      {"one look is a moment",
       {0, 500, 0},
       StrainKind::kQueueDelay,
       {{1, Waiting(501), false}, {1, Waiting(500), false}, {1, Waiting(501), false}}},
      {"two are not", {0, 500, 0}, StrainKind::kQueueDelay, {{2, Waiting(501), true}}},
      {"just within is not well within", {0, 500, 0}, StrainKind::kQueueDelay, {{2, Waiting(501), true}, {50, Waiting(401), true}}},
      {"well within, nine times",
       {0, 500, 0},
       StrainKind::kQueueDelay,
       {{2, Waiting(501), true}, {9, Waiting(400), true}, {1, Waiting(450), true}, {9, Waiting(0), true}, {1, Waiting(0), false}}},
      {"a relapse counts from the beginning",
       {0, 500, 0},
       StrainKind::kQueueDelay,
       {{2, Waiting(501), true}, {10, Waiting(0), false}, {1, Waiting(900), false}, {1, Waiting(900), true}}},
      {"latency", {0, 0, 100}, StrainKind::kLatency, {{2, Took(101), true}, {10, Took(80), false}}},
      {"where nobody calls no latency is too long",
       {0, 0, 100},
       StrainKind::kLatency,
       {{2, Took(101), true}, {10, Took(std::nullopt), false}}},
      {"memory", {0.2, 0, 0}, StrainKind::kMemory, {{2, Free(0.19), true}, {20, Free(0.24), true}, {10, Free(0.25), false}}},
      {"nearly all of it must be free",
       {0.9, 0, 0},
       StrainKind::kMemory,
       {{2, Free(0.89), true}, {20, Free(0.99), true}, {10, Free(1.0), false}}},
      {"memory that is not told speaks for nothing",
       {0.2, 0, 0},
       StrainKind::kMemory,
       {{9, Free(std::nullopt), false}, {2, Free(0.1), true}, {50, Free(std::nullopt), true}}},
      {"off", {}, StrainKind::kQueueDelay, {{9, {0.0, std::chrono::hours(1), std::chrono::hours(1)}, false}}},
      {"each by itself", {0, 500, 0}, StrainKind::kLatency, {{9, {0.0, Duration::zero(), std::chrono::hours(1)}, false}}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    ReadinessThresholds thresholds(c.options);
    for (const Looks& looks : c.looks) {
      for (int i = 0; i < looks.count; ++i) thresholds.Step(looks.figures);
      CHECK(thresholds.strained(c.kind) == looks.strained);
      CHECK(thresholds.Reason().empty() == !looks.strained);
    }
  }
}

TEST_CASE("the reason names every threshold that is passed, with its figures", "[readiness]") {
  ReadinessThresholds thresholds({0.2, 500, 100});
  const ReadinessFigures figures{0.05, milliseconds(812), milliseconds(140)};
  thresholds.Step(figures);
  CHECK(thresholds.Reason().empty());
  thresholds.Step(figures);
  CHECK(
      thresholds.Reason() ==
      "the server serves, and should be sent less: 5 % of the memory budget is free, less than 20 %; a row has waited 812 ms, more "
      "than 500 ms; 1 % of the latest requests took 140 ms, more than 100 ms");
}

}  // namespace
}  // namespace headroom
