#include "server/lifecycle.h"

#include <catch2/catch.hpp>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/fakes/manual_clock.h"

namespace headroom {
namespace {

using Phase = Lifecycle::Phase;
using std::chrono::seconds;

enum class Event { kStartServing, kStop, kLoseDevice };

void Happen(Lifecycle& lifecycle, Event event) {
  switch (event) {
    case Event::kStartServing: return lifecycle.StartServing();
    case Event::kStop: return lifecycle.Stop();
    case Event::kLoseDevice: return lifecycle.LoseDevice("the bus is off");
  }
}

TEST_CASE("phases only advance", "[lifecycle]") {
  struct Case {
    std::vector<Event> events;
    Phase phase;
    std::vector<bool> told;  // what the listener heard
  };
  const Event start = Event::kStartServing;
  const Event stop = Event::kStop;
  const Event lose = Event::kLoseDevice;
  const std::vector<Case> cases = {
      {{}, Phase::kStarting, {}},
      {{start}, Phase::kServing, {true}},
      {{start, start}, Phase::kServing, {true}},
      {{start, stop}, Phase::kDraining, {true, false}},
      {{start, stop, stop, start}, Phase::kDraining, {true, false}},
      {{stop}, Phase::kDraining, {}},
      {{stop, start}, Phase::kDraining, {}},
      {{start, lose}, Phase::kDeviceLost, {true, false}},
      {{start, stop, lose}, Phase::kDeviceLost, {true, false}},
      {{start, lose, lose, stop, start}, Phase::kDeviceLost, {true, false}},
      {{lose, start}, Phase::kDeviceLost, {}},
  };
  for (const Case& c : cases) {
    ManualClock clock;
    Lifecycle lifecycle(clock);
    std::vector<bool> told;
    lifecycle.OnServingChanged([&](bool serving) {
      CHECK(lifecycle.serving() == serving);  // no lock is held that this needs
      told.push_back(serving);
    });
    for (const Event event : c.events) Happen(lifecycle, event);
    CHECK(lifecycle.phase() == c.phase);
    CHECK(lifecycle.serving() == (c.phase == Phase::kServing));
    CHECK(told == c.told);
    CHECK(lifecycle.stop_token().stop_requested() == (c.phase >= Phase::kDraining));
    if (c.phase >= Phase::kDraining) CHECK(lifecycle.WaitForEnd() == c.phase);
  }
}

TEST_CASE("requests are let in while it serves, and told why not otherwise", "[lifecycle]") {
  ManualClock clock;
  Lifecycle lifecycle(clock);
  const auto refusal = [&] {
    const absl::Status status = lifecycle.Admit().status();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    return std::string(status.message());
  };
  const std::string starting = "the server is starting: models are being loaded, warmed and calibrated";
  CHECK(refusal() == starting);
  CHECK(lifecycle.NotReadyReason() == starting);

  lifecycle.StartServing();
  CHECK(lifecycle.Admit().ok());
  CHECK(lifecycle.NotReadyReason().empty());

  lifecycle.Stop();
  const std::string draining = "the server is draining: it answers what it has admitted and then ends";
  CHECK(refusal() == draining);
  CHECK(lifecycle.NotReadyReason() == draining);

  lifecycle.LoseDevice("the bus is off");
  CHECK(refusal() == "the device was lost");  // the reason is for the operator, not for clients
  CHECK(lifecycle.NotReadyReason() == "the device was lost: the bus is off");
}

TEST_CASE("whoever was let in is inside until the last right to it is gone", "[lifecycle]") {
  ManualClock clock;
  Lifecycle lifecycle(clock);
  lifecycle.StartServing();
  const auto idle = [&] { return lifecycle.WaitUntilIdle(clock.Now()); };
  CHECK(idle());
  Admittance first = lifecycle.Admit().value();
  CHECK_FALSE(idle());
  {
    const Admittance moved = std::move(first);
    CHECK_FALSE(idle());
  }
  CHECK(idle());
  {
    Admittance second = lifecycle.Admit().value();
    Admittance third = lifecycle.Admit().value();
    lifecycle.Stop();
    second = Admittance();
    CHECK_FALSE(idle());
    third = Admittance();
    CHECK(idle());
  }
  CHECK(idle());
}

TEST_CASE("a refused request is not inside", "[lifecycle]") {
  ManualClock clock;
  Lifecycle lifecycle(clock);
  lifecycle.Stop();
  CHECK_FALSE(lifecycle.Admit().ok());
  CHECK(lifecycle.WaitUntilIdle(clock.Now()));
}

TEST_CASE("waiting for the last request ends when it has gone", "[lifecycle]") {
  ManualClock clock;
  Lifecycle lifecycle(clock);
  lifecycle.StartServing();
  Admittance inside = lifecycle.Admit().value();
  Admittance also_inside = lifecycle.Admit().value();
  const TimePoint limit = clock.Now() + seconds(30);
  auto idle = std::async(std::launch::async, [&] { return lifecycle.WaitUntilIdle(limit); });
  clock.AwaitSleeperUntil(limit);
  inside = Admittance();
  also_inside = Admittance();
  CHECK(idle.get());
  CHECK(clock.Now() < limit);
}

TEST_CASE("waiting for the last request ends when the time is up", "[lifecycle]") {
  ManualClock clock;
  Lifecycle lifecycle(clock);
  lifecycle.StartServing();
  const Admittance inside = lifecycle.Admit().value();
  const TimePoint limit = clock.Now() + seconds(30);
  auto idle = std::async(std::launch::async, [&] { return lifecycle.WaitUntilIdle(limit); });
  clock.AwaitSleeperUntil(limit);
  clock.Advance(seconds(30));
  CHECK_FALSE(idle.get());
}

TEST_CASE("the end is waited for by a thread of its own", "[lifecycle]") {
  for (const bool lost : {false, true}) {
    ManualClock clock;
    Lifecycle lifecycle(clock);
    lifecycle.StartServing();
    auto end = std::async(std::launch::async, [&] { return lifecycle.WaitForEnd(); });
    lost ? lifecycle.LoseDevice("") : lifecycle.Stop();
    CHECK(end.get() == (lost ? Phase::kDeviceLost : Phase::kDraining));
  }
}

TEST_CASE("while it settles late calls are let in, and it says that it is not ready", "[lifecycle]") {
  ManualClock clock;
  Lifecycle lifecycle(clock, seconds(5));
  std::vector<bool> told;
  lifecycle.OnServingChanged([&](bool serving) { told.push_back(serving); });
  lifecycle.StartServing();
  const TimePoint settled = clock.Now() + seconds(5);
  auto end = std::async(std::launch::async, [&] { return lifecycle.WaitForEnd(); });
  lifecycle.Stop();
  clock.AwaitSleeperUntil(settled);
  CHECK(lifecycle.phase() == Phase::kSettling);
  CHECK(told == std::vector<bool>{true, false});
  CHECK_FALSE(lifecycle.serving());
  CHECK_FALSE(lifecycle.NotReadyReason().empty());
  CHECK(lifecycle.stop_token().stop_requested());
  CHECK(lifecycle.Admit().ok());
  lifecycle.Stop();  // a second signal changes nothing
  CHECK(lifecycle.phase() == Phase::kSettling);
  clock.Advance(seconds(5));
  CHECK(end.get() == Phase::kDraining);
  CHECK_FALSE(lifecycle.Admit().ok());
  CHECK(told == std::vector<bool>{true, false});
}

TEST_CASE("a device that is lost ends the settling", "[lifecycle]") {
  ManualClock clock;
  Lifecycle lifecycle(clock, seconds(5));
  lifecycle.StartServing();
  lifecycle.Stop();
  auto end = std::async(std::launch::async, [&] { return lifecycle.WaitForEnd(); });
  clock.AwaitSleeperUntil(clock.Now() + seconds(5));
  lifecycle.LoseDevice("");
  CHECK(end.get() == Phase::kDeviceLost);
}

TEST_CASE("a stop during the start settles nothing", "[lifecycle]") {
  ManualClock clock;
  Lifecycle lifecycle(clock, seconds(5));
  lifecycle.Stop();
  CHECK(lifecycle.phase() == Phase::kDraining);
  CHECK(lifecycle.WaitForEnd() == Phase::kDraining);
}

TEST_CASE("a strained server lets requests in and says that others should be called", "[lifecycle]") {
  ManualClock clock;
  Lifecycle lifecycle(clock);
  std::vector<bool> told;
  lifecycle.OnServingChanged([&](bool serving) { told.push_back(serving); });
  lifecycle.SetStrain("too early");
  CHECK(lifecycle.NotReadyReason().starts_with("the server is starting"));
  lifecycle.StartServing();
  CHECK(told.empty());  // strained from the first moment on
  lifecycle.SetStrain("");
  lifecycle.SetStrain("");
  lifecycle.SetStrain("a row has waited 3 s");
  lifecycle.SetStrain("a row has waited 4 s");
  CHECK(told == std::vector<bool>{true, false});
  CHECK(lifecycle.phase() == Phase::kServing);
  CHECK_FALSE(lifecycle.serving());
  CHECK(lifecycle.NotReadyReason() == "a row has waited 4 s");
  CHECK(lifecycle.Admit().ok());
  lifecycle.Stop();
  lifecycle.SetStrain("");
  CHECK_FALSE(lifecycle.serving());
  CHECK(told == std::vector<bool>{true, false});
}

TEST_CASE("a device that is lost ends the wait for the last request", "[lifecycle]") {
  ManualClock clock;
  Lifecycle lifecycle(clock);
  lifecycle.StartServing();
  const Admittance inside = lifecycle.Admit().value();
  lifecycle.Stop();
  const TimePoint limit = clock.Now() + seconds(30);
  auto idle = std::async(std::launch::async, [&] { return lifecycle.WaitUntilIdle(limit); });
  clock.AwaitSleeperUntil(limit);
  lifecycle.LoseDevice("a run hangs");
  CHECK_FALSE(idle.get());
  // What follows waits in earnest.
  CHECK_FALSE(lifecycle.WaitUntilIdle(clock.Now() + seconds(2)));
}

TEST_CASE("a stop during the start is told to whoever works at it", "[lifecycle]") {
  ManualClock clock;
  Lifecycle lifecycle(clock);
  bool told = false;
  const std::stop_callback callback(lifecycle.stop_token(), [&] { told = true; });
  lifecycle.Stop();
  CHECK(told);
  lifecycle.StartServing();
  CHECK_FALSE(lifecycle.Admit().ok());
}

TEST_CASE("many threads that stop and start leave the listener with the last word", "[lifecycle]") {
  ManualClock clock;
  Lifecycle lifecycle(clock);
  std::vector<bool> told;
  lifecycle.OnServingChanged([&](bool serving) { told.push_back(serving); });
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] { lifecycle.StartServing(); });
      threads.emplace_back([&] { lifecycle.Stop(); });
    }
  }
  CHECK(lifecycle.phase() == Phase::kDraining);
  CHECK((told.empty() || told == std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace headroom
