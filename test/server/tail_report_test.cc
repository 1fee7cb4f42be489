#include "server/tail_report.h"

#include <catch2/catch.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "base/log.h"
#include "test/fakes/manual_clock.h"
#include "test/fakes/recording_observer.h"

namespace headroom {
namespace {

TEST_CASE("each row is counted, and a line in a while tells of them", "[tail_report]") {
  ManualClock clock;
  RecordingObserver observer;
  std::vector<LogEvent> lines;
  SetLogSink([&](const LogEvent& event) { lines.push_back(event); });
  TailReport report(observer, clock);
  report.Tell("P", {});
  CHECK(lines.empty());
  report.Tell("P", {.truncated = 2, .solo = 1, .longest = 900});
  report.Tell("P", {.refused = 1, .longest = 5000});
  report.Tell("Q", {.solo = 4, .longest = 600});
  using Told = std::tuple<std::string, TailTreatment, std::int64_t>;
  CHECK(observer.tail_rows() == std::vector<Told>{{"P", TailTreatment::kTruncate, 2},
                                                  {"P", TailTreatment::kSolo, 1},
                                                  {"P", TailTreatment::kRefused, 1},
                                                  {"Q", TailTreatment::kSolo, 4}});
  CHECK(lines.size() == 1);
  clock.Advance(std::chrono::seconds(10));
  report.Tell("P", {.refused = 1, .longest = 700});
  REQUIRE(lines.size() == 2);
  CHECK(lines[1].fields.back().first == "requests_since_last_line");
  CHECK(lines[1].fields.back().second.text == "2");
  SetLogSink({});
}

}  // namespace
}  // namespace headroom
