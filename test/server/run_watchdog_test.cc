#include "server/run_watchdog.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "test/fakes/fake_device.h"
#include "test/fakes/manual_clock.h"
#include "test/fakes/recording_observer.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("a run may take a multiple of what is expected, and a least time", "[run_watchdog]") {
  struct Case {
    Duration expected;
    WatchdogOptions options;
    Duration longest;
  };
  const std::vector<Case> cases = {
      {milliseconds(2), {50, 60}, seconds(60)},     // 100 ms are no hang
      {milliseconds(1200), {50, 60}, seconds(60)},  // the very same
      {seconds(2), {50, 60}, seconds(100)},        {seconds(2), {5, 1}, seconds(10)},
      {Duration::zero(), {50, 60}, seconds(60)},  // not known
      {seconds(2), {0, 60}, Duration::max()},     // off
  };
  for (const Case& c : cases) CHECK(LongestRun(c.expected, c.options) == c.longest);
  CHECK(LongestRun(std::chrono::hours(1'000'000), {1e6, 60}) == std::chrono::hours(24 * 365));
}

TEST_CASE("the first run that is over its time hangs", "[run_watchdog]") {
  const TimePoint now{std::chrono::hours(1)};
  const WatchdogOptions options{10, 5};
  const auto run = [&](const char* model, Duration age, Duration expected) {
    return RunUnderWay{model, {4, 32}, now - age, expected};
  };
  CHECK_FALSE(FirstHungRun({}, now, options));
  const std::vector<RunUnderWay> well = {run("a", seconds(5), seconds(0)), run("b", seconds(10), seconds(1))};
  CHECK_FALSE(FirstHungRun(well, now, options));
  const std::vector<RunUnderWay> hung = {run("a", seconds(19), seconds(2)), run("b", seconds(11), seconds(1)),
                                         run("c", seconds(20), seconds(1))};
  const auto found = FirstHungRun(hung, now, options);
  REQUIRE(found);
  CHECK(found->model == "b");
  CHECK_FALSE(FirstHungRun(hung, now, {0, 5}));
}

TEST_CASE("a device with a hung run is lost, and told of once", "[run_watchdog]") {
  ManualClock clock;
  RecordingObserver observer;
  std::vector<std::unique_ptr<ServingDevice>> devices;
  for (const char* const name : {"cuda:0", "cuda:1"}) {
    FakeDevice::Options options;
    options.name = name;
    devices.push_back(std::make_unique<ServingDevice>());
    devices.back()->device = std::make_unique<FakeDevice>(options);
  }
  std::vector<LogEvent> events;
  SetLogSink([&](const LogEvent& event) { events.push_back(event); });
  RunWatchdog watchdog(devices, observer, {50, 60});
  const auto look = [&] {
    ResourceReading reading;
    reading.time = clock.Now();
    watchdog.Look(reading);
  };
  const RunEntry run = devices[1]->runs.Enter({"P", {3, 64}, clock.Now(), milliseconds(5)});
  look();
  clock.Advance(seconds(60));
  look();
  CHECK(observer.lost().empty());
  CHECK(events.empty());
  clock.Advance(milliseconds(1));
  look();
  look();
  SetLogSink(nullptr);
  using Lost = std::vector<std::pair<std::string, std::string>>;
  CHECK(observer.lost() == Lost{{"cuda:1", "a run of model 'P' hangs"}});
  REQUIRE(events.size() == 1);
  CHECK(events[0].level == LogLevel::kError);
  CHECK(events[0].fields[0].second.text == "P");
  CHECK(events[0].fields[2].second.text == "3");
  CHECK(events[0].fields[3].second.text == "64");
}

}  // namespace
}  // namespace headroom
