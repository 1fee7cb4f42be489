#include <catch2/catch.hpp>
#include <thread>

#include "batching/batcher.h"
#include "test/fakes/manual_clock.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;

TEST_CASE("a call between the look and the sleep is not missed", "[work_signal]") {
  ManualClock clock;
  WorkSignal work;
  const std::uint64_t seen = work.count();
  work.Notify();
  work.WaitBeyond(seen, kForever, clock);  // or it would throw: this thread owns the time
  CHECK(work.count() != seen);
}

TEST_CASE("a wait is over when its time has come", "[work_signal]") {
  ManualClock clock;
  WorkSignal work;
  const TimePoint until = clock.Now() + milliseconds(5);
  work.WaitBeyond(work.count(), until, clock);
  CHECK(clock.Now() == until);
}

TEST_CASE("every sleeper is woken", "[work_signal]") {
  ManualClock clock;
  WorkSignal work;
  std::atomic<int> woken = 0;
  const std::uint64_t seen = work.count();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        work.WaitBeyond(seen, kForever, clock);
        ++woken;
      });
    }
    clock.AwaitSleeperUntil(kForever);
    work.Notify();
  }
  CHECK(woken == 3);
}

}  // namespace
}  // namespace headroom
