#include "bench/figures/bootstrap.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <vector>

namespace headroom {
namespace {

double MeanOf(const std::vector<double>& values, std::span<const std::size_t> rounds) {
  double sum = 0;
  for (const std::size_t round : rounds) sum += values[round];
  return sum / static_cast<double>(rounds.size());
}

Interval MeanInterval(const std::vector<double>& values) {
  Random random(7);
  return Bootstrap(
      values.size(), [&](std::span<const std::size_t> rounds) { return MeanOf(values, rounds); }, random);
}

TEST_CASE("rounds that agree leave no doubt", "[bootstrap]") {
  const Interval interval = MeanInterval({0.9, 0.9, 0.9, 0.9});
  CHECK(interval.value == Approx(0.9));
  CHECK(interval.low == Approx(0.9));
  CHECK(interval.high == Approx(0.9));
}

TEST_CASE("two rounds tell a figure, and nothing of how sure it is", "[bootstrap]") {
  const Interval interval = MeanInterval({1, 3});
  CHECK(interval.value == 2);
  CHECK(std::isnan(interval.low));
  CHECK(std::isnan(interval.high));
}

TEST_CASE("an interval is as wide as the rounds differ", "[bootstrap]") {
  // The mean of 16 draws of 0 or 1 has a standard deviation of 1/8: 95 % lie within a quarter of a half.
  std::vector<double> values(16, 0);
  std::fill(values.begin() + 8, values.end(), 1);
  const Interval interval = MeanInterval(values);
  CHECK(interval.value == 0.5);
  CHECK(interval.low == Approx(0.25).margin(0.07));
  CHECK(interval.high == Approx(0.75).margin(0.07));
}

TEST_CASE("the figure is that of every round once", "[bootstrap]") {
  Random random(1);
  int calls = 0;
  Bootstrap(
      5,
      [&](std::span<const std::size_t> rounds) {
        if (calls++ == 0) CHECK(std::vector<std::size_t>(rounds.begin(), rounds.end()) == std::vector<std::size_t>{0, 1, 2, 3, 4});
        CHECK(rounds.size() == 5);
        for (const std::size_t round : rounds) CHECK(round < 5);
        return 1.0;
      },
      random, 20);
  CHECK(calls == 21);
}

TEST_CASE("a figure that is not finite is left out", "[bootstrap]") {
  // A resample without round 0 divides by nothing.
  Random random(3);
  const Interval interval = Bootstrap(
      3,
      [](std::span<const std::size_t> rounds) {
        const auto zeros = static_cast<double>(std::count(rounds.begin(), rounds.end(), 0U));
        return static_cast<double>(rounds.size()) / zeros;
      },
      random);
  CHECK(interval.value == 3);
  CHECK(interval.low >= 1);
  CHECK(interval.high == 3);
}

}  // namespace
}  // namespace headroom
