#include "base/clock.h"

#include <catch2/catch.hpp>
#include <thread>

#include "test/fakes/manual_clock.h"

namespace headroom {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST_CASE("a time after another never overflows", "[clock]") {
  const TimePoint time{hours(5)};
  CHECK(After(time, milliseconds(3)) == time + milliseconds(3));
  CHECK(After(time, Duration::zero()) == time);
  CHECK(After(time, Duration::max()) == kForever);
  CHECK(After(kForever, milliseconds(1)) == kForever);
  CHECK(After(kForever - nanoseconds(1), nanoseconds(1)) == kForever);
  CHECK(After(kForever - nanoseconds(2), nanoseconds(1)) == kForever - nanoseconds(1));
}

TEST_CASE("durations are told in seconds and whole microseconds", "[clock]") {
  CHECK(Seconds(milliseconds(1500)) == Approx(1.5));
  CHECK(Microseconds(nanoseconds(2999)) == 2);
}

TEST_CASE("the real clock does not go back", "[clock]") {
  const TimePoint first = RealClock().Now();
  CHECK(RealClock().Now() >= first);
}

TEST_CASE("waiting for a time that has passed is over at once", "[clock]") {
  Mutex mutex;
  CondVar condition;
  MutexLock lock(mutex);
  CHECK_FALSE(RealClock().WaitUntil(mutex, condition, RealClock().Now() - milliseconds(1)));
}

TEST_CASE("waiting on the real clock ends with a notification, for ever or not", "[clock]") {
  const bool for_ever = GENERATE(true, false);
  Mutex mutex;
  CondVar condition;
  bool said = false;
  std::jthread speaker([&] {
    MutexLock lock(mutex);
    said = true;
    condition.NotifyOne();
  });
  MutexLock lock(mutex);
  bool in_time = true;
  while (!said && in_time) {
    in_time = RealClock().WaitUntil(mutex, condition, for_ever ? kForever : RealClock().Now() + hours(1));
  }
  CHECK(in_time);
}

TEST_CASE("the manual clock wakes a sleeper when its time comes, not before", "[clock]") {
  ManualClock clock;
  const TimePoint until = clock.Now() + milliseconds(10);
  Mutex mutex;
  CondVar condition;
  TimePoint woke{};
  {
    std::jthread sleeper([&] {
      MutexLock lock(mutex);
      while (clock.WaitUntil(mutex, condition, until)) {
      }
      woke = clock.Now();
    });
    clock.AwaitSleeperUntil(until);
    clock.Advance(milliseconds(9));
    clock.AwaitSleeperUntil(until);
    clock.Advance(milliseconds(1));
  }
  CHECK(woke == until);
}

TEST_CASE("time passes at once for the thread that owns the manual clock", "[clock]") {
  ManualClock clock;
  const TimePoint until = clock.Now() + hours(1);
  Mutex mutex;
  CondVar condition;
  MutexLock lock(mutex);
  CHECK_FALSE(clock.WaitUntil(mutex, condition, until));
  CHECK(clock.Now() == until);
}

}  // namespace
}  // namespace headroom
