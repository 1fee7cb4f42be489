#include "bench/ideal/crew.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <set>

namespace headroom {
namespace {

TEST_CASE("every worker does each piece of work once, on a thread that stays", "[crew]") {
  Crew crew(3);
  std::vector<std::thread::id> first(3);
  crew.RunAll([&](int worker) { first[static_cast<std::size_t>(worker)] = std::this_thread::get_id(); });
  CHECK(std::set<std::thread::id>(first.begin(), first.end()).size() == 3);
  for (int turn = 0; turn < 100; ++turn) {
    std::vector<std::atomic<int>> done(3);
    std::atomic<bool> moved = false;
    crew.RunAll([&](int worker) {
      ++done[static_cast<std::size_t>(worker)];
      if (first[static_cast<std::size_t>(worker)] != std::this_thread::get_id()) moved = true;
    });
    for (const auto& times : done) CHECK(times == 1);
    CHECK_FALSE(moved);
  }
}

TEST_CASE("all work at once", "[crew]") {
  Crew crew(2);
  // Each waits for the other one: were they to follow each other, this would not end.
  std::atomic<int> there{0};
  crew.RunAll([&](int) {
    ++there;
    while (there < 2) std::this_thread::yield();
  });
  CHECK(there == 2);
}

TEST_CASE("a crew that never worked ends", "[crew]") {
  const Crew crew(2);
  CHECK(crew.size() == 2);
}

}  // namespace
}  // namespace headroom
