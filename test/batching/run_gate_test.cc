#include "batching/run_gate.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <optional>
#include <thread>
#include <vector>

namespace headroom {
namespace {

TEST_CASE("passes are counted, and give themselves back", "[gate]") {
  RunGate gate;
  {
    const RunPass one = gate.Enter();
    RunPass two = gate.Enter();
    CHECK(gate.running() == 2);
    const RunPass moved = std::move(two);
    CHECK(gate.running() == 2);
  }
  CHECK(gate.running() == 0);
  {
    const RunPass alone = gate.EnterAlone();
    CHECK(gate.running() == 1);
  }
  CHECK(gate.running() == 0);
}

TEST_CASE("who wants to run alone waits until nobody runs", "[gate]") {
  RunGate gate;
  std::optional<RunPass> ordinary(gate.Enter());
  std::atomic<bool> entered = false;
  std::jthread alone([&] {
    const RunPass pass = gate.EnterAlone();
    entered = true;
  });
  // Time enough for one that does not wait.
  for (int i = 0; i < 2000; ++i) std::this_thread::yield();
  CHECK_FALSE(entered);
  ordinary.reset();
  alone.join();
  CHECK(entered);
}

TEST_CASE("who runs alone shares with nobody, and nobody waits for ever", "[gate]") {
  RunGate gate;
  std::atomic<int> inside = 0;
  std::atomic<int> shared_beside_alone = 0;
  std::atomic<int> done = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const bool alone = (i + t) % 4 == 0;
        const RunPass pass = alone ? gate.EnterAlone() : gate.Enter();
        const int others = inside.fetch_add(1);
        if (alone && others != 0) ++shared_beside_alone;
        inside.fetch_sub(1);
        ++done;
      }
    });
  }
  threads.clear();
  CHECK(shared_beside_alone == 0);
  CHECK(done == 2000);
  CHECK(gate.running() == 0);
}

}  // namespace
}  // namespace headroom
