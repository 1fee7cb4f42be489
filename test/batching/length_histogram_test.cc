#include "batching/length_histogram.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace headroom {
namespace {

LengthCounts CountsOf(const std::vector<std::int64_t>& lengths) {
  LengthHistogram histogram;
  for (const std::int64_t length : lengths) histogram.Add(length);
  return histogram.Counts();
}

TEST_CASE("lengths are counted as they are, up to a point", "[length_histogram]") {
  CHECK(CountsOf({}).empty());
  CHECK(CountsOf({7, 1, 7, 4096, 7}) == LengthCounts{{1, 1}, {7, 3}, {4096, 1}});
  CHECK(CountsOf({0, -5}).empty());
}

TEST_CASE("longer ones share a counter and are told as its longest", "[length_histogram]") {
  CHECK(CountsOf({4097, 4160, 4161}) == LengthCounts{{4160, 2}, {4224, 1}});
  CHECK(CountsOf({8192, 8193}) == LengthCounts{{8192, 1}, {8320, 1}});
  CHECK(CountsOf({1 << 20, (1 << 20) + 1, std::int64_t{1} << 40}) == LengthCounts{{1 << 20, 3}});
  for (std::int64_t length = 4097; length < (1 << 20); length += 97) {
    const LengthCounts told = CountsOf({length});
    REQUIRE(told.size() == 1);
    CAPTURE(length, told.front().length);
    REQUIRE(told.front().length >= length);
    REQUIRE(static_cast<double>(told.front().length) <= 1.0157 * static_cast<double>(length));
  }
}

TEST_CASE("threads count into the same histogram", "[length_histogram]") {
  LengthHistogram histogram;
  constexpr int kThreads = 4;
  constexpr int kRows = 10'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRows; ++i) histogram.Add(1 + i % 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(histogram.Counts() == LengthCounts{{1, kThreads * kRows / 2}, {2, kThreads * kRows / 2}});
}

}  // namespace
}  // namespace headroom
