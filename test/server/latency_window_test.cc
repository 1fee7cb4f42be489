#include "server/latency_window.h"

#include <catch2/catch.hpp>
#include <vector>

namespace headroom {
namespace {

using std::chrono::milliseconds;

void Record(LatencyWindow& window, int times, Duration took) {
  for (int i = 0; i < times; ++i) window.Record(took);
}

// As told, or up to a fifth more: bucket bounds.
void CheckAbout(std::optional<Duration> told, Duration right) {
  REQUIRE(told);
  CHECK(*told >= right);
  CHECK(Seconds(*told) <= Seconds(right) * 1.21);
}

TEST_CASE("ninety-nine in a hundred are no longer than what is told", "[latency_window]") {
  LatencyWindow window;
  Record(window, 990, milliseconds(10));
  Record(window, 10, milliseconds(700));
  CheckAbout(window.Percentile(), milliseconds(10));
  Record(window, 1, milliseconds(700));
  Record(window, 10, milliseconds(800));
  CheckAbout(window.Percentile(), milliseconds(700));
}

TEST_CASE("few requests tell nothing", "[latency_window]") {
  LatencyWindow window;
  CHECK_FALSE(window.Percentile());
  Record(window, 19, milliseconds(10));
  CHECK_FALSE(window.Percentile());
  Record(window, 1, milliseconds(10));
  CheckAbout(window.Percentile(), milliseconds(10));
}

TEST_CASE("what is older than the window is forgotten", "[latency_window]") {
  LatencyWindow window;
  Record(window, 100, milliseconds(500));
  for (std::size_t look = 0; look < LatencyWindow::kLooks; ++look) {
    Record(window, 10, milliseconds(5));
    CheckAbout(window.Percentile(), milliseconds(500));
  }
  Record(window, 10, milliseconds(5));
  CheckAbout(window.Percentile(), milliseconds(5));
  for (std::size_t look = 0; look < LatencyWindow::kLooks; ++look) window.Percentile();
  CHECK_FALSE(window.Percentile());
}

TEST_CASE("the shortest and the longest have a place", "[latency_window]") {
  LatencyWindow window;
  Record(window, 100, Duration::zero());
  CHECK(*window.Percentile() <= milliseconds(1));
  Record(window, 100'000, std::chrono::hours(10));
  CHECK(*window.Percentile() >= std::chrono::minutes(30));
}

}  // namespace
}  // namespace headroom
