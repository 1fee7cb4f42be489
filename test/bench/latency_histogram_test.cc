#include "bench/figures/latency_histogram.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

namespace headroom {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST_CASE("nothing recorded is no time", "[histogram]") {
  const LatencyHistogram histogram;
  CHECK(histogram.count() == 0);
  CHECK(histogram.Quantile(0.99) == Duration::zero());
  CHECK(histogram.max() == Duration::zero());
  CHECK(histogram.mean() == Duration::zero());
}

TEST_CASE("short times are told exactly", "[histogram]") {
  LatencyHistogram histogram;
  for (int i = 1; i <= 100; ++i) histogram.Record(nanoseconds(i));
  CHECK(histogram.Quantile(0) == nanoseconds(1));
  CHECK(histogram.Quantile(0.5) == nanoseconds(50));
  CHECK(histogram.Quantile(0.99) == nanoseconds(99));
  CHECK(histogram.Quantile(1) == nanoseconds(100));
  CHECK(histogram.mean() == nanoseconds(51));  // 50.5
}

TEST_CASE("a quantile is never told too low, nor above the longest time", "[histogram]") {
  LatencyHistogram histogram;
  histogram.Record(milliseconds(10));
  histogram.Record(microseconds(10'001));
  CHECK(histogram.Quantile(0.5) >= milliseconds(10));
  CHECK(histogram.Quantile(1) == microseconds(10'001));
  CHECK(histogram.max() == microseconds(10'001));
}

TEST_CASE("what is out of range is counted at its end", "[histogram]") {
  LatencyHistogram histogram;
  histogram.Record(-milliseconds(5));
  histogram.Record(hours(2));
  CHECK(histogram.count() == 2);
  CHECK(histogram.Quantile(0.5) == Duration::zero());
  CHECK(histogram.max() == hours(2));
  CHECK(histogram.Quantile(1) < hours(1));
}

TEST_CASE("every quantile is within 0.8 % of the true one", "[histogram]") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  // Evenly over the powers of two that there are buckets for.
  std::uniform_real_distribution<double> powers(0, 39.99);
  LatencyHistogram histogram;
  std::vector<std::int64_t> times;
  for (int i = 0; i < 5000; ++i) {
    times.push_back(static_cast<std::int64_t>(std::exp2(powers(random))));
    histogram.Record(nanoseconds(times.back()));
  }
  std::sort(times.begin(), times.end());
  for (const double share : {0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0}) {
    const auto at = static_cast<std::size_t>(std::ceil(share * static_cast<double>(times.size()))) - 1;
    CAPTURE(share, times[at]);
    const std::int64_t told = histogram.Quantile(share).count();
    CHECK(told >= times[at]);
    CHECK(static_cast<double>(told) <= 1.008 * static_cast<double>(times[at]));
  }
}

TEST_CASE("merged, two histograms are what one would have been", "[histogram]") {
  LatencyHistogram both;
  LatencyHistogram parts[2];
  for (int i = 0; i < 1000; ++i) {
    const Duration time = microseconds(7 * i % 1009);
    both.Record(time);
    parts[i % 2].Record(time);
  }
  parts[0].Merge(parts[1]);
  CHECK(parts[0].count() == both.count());
  CHECK(parts[0].max() == both.max());
  CHECK(parts[0].mean() == both.mean());
  for (const double share : {0.01, 0.5, 0.9, 0.999}) CHECK(parts[0].Quantile(share) == both.Quantile(share));
}

}  // namespace
}  // namespace headroom
