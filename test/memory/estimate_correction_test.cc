#include "memory/estimate_correction.h"

#include <catch2/catch.hpp>
#include <iostream>
#include <limits>
#include <random>

namespace headroom {
namespace {

const Bytes kEstimate{1'000'000};
Bytes Times(double ratio) { return Scale(kEstimate, ratio); }

TEST_CASE("before anything is observed the safety margin is what is added", "[correction]") {
  const EstimateCorrection correction({32, 128}, 0.05);
  CHECK(correction.FactorAt(1) == 1.05);
  CHECK(correction.FactorAt(128) == 1.05);
  CHECK(correction.FactorAt(5000) == 1.05);
  CHECK(EstimateCorrection({}, 0).FactorAt(7) == 1.0);
}

TEST_CASE("the largest ratio is a floor from the first batch on", "[correction]") {
  EstimateCorrection correction({32, 128}, 0.05);
  CHECK(correction.Observe(100, kEstimate, Times(1.43)));
  CHECK(correction.FactorAt(128) >= 1.43);
  CHECK_FALSE(correction.Observe(100, kEstimate, Times(1.43)));
  for (int i = 0; i < 1000; ++i) correction.Observe(100, kEstimate, Times(0.9));
  CHECK(correction.FactorAt(128) == Approx(1.43));
}

TEST_CASE("a class that has run nothing takes the largest factor of the others; one that has keeps its own", "[correction]") {
  EstimateCorrection correction({32, 128, 512}, 0.05);
  correction.Observe(128, kEstimate, Times(1.2));
  CHECK(correction.FactorAt(512) == Approx(1.2));
  CHECK(correction.FactorAt(20) == Approx(1.2));
  correction.Observe(512, kEstimate, Times(1.0));
  CHECK(correction.FactorAt(512) == Approx(1.05));
  CHECK(correction.FactorAt(20) == Approx(1.2));
}

TEST_CASE("a margin that covers is not raised, nor lowered below the safety margin", "[correction]") {
  EstimateCorrection correction({32}, 0.05);
  for (int i = 0; i < 100000; ++i) CHECK_FALSE(correction.Observe(32, kEstimate, Times(i % 2 == 0 ? 0.99 : 1.0)));
  CHECK(correction.FactorAt(32) == 1.05);
}

TEST_CASE("an impossible ratio does not close a bucket", "[correction]") {
  EstimateCorrection correction({32}, 0.05);
  correction.Observe(32, Bytes{1}, GiB(100));
  CHECK(correction.FactorAt(32) == EstimateCorrection::kLargestRatio);
  correction.Observe(32, Bytes{0}, GiB(100));
  CHECK(correction.FactorAt(32) == EstimateCorrection::kLargestRatio);
}

TEST_CASE("a refused allocation is evidence only where it passes the estimate", "[correction]") {
  EstimateCorrection correction({32}, 0.05);
  correction.ObserveAtLeast(32, kEstimate, Times(0.5));
  CHECK(correction.FactorAt(32) == 1.05);
  correction.ObserveAtLeast(32, kEstimate, Times(1.3));
  CHECK(correction.FactorAt(32) == Approx(1.3));
}

TEST_CASE("with an estimator that is short by 30 % the margin holds from the second batch of a bucket on",
          "[correction][property]") {
  const auto seed = GENERATE(1U, 2U, 3U, 4U, 5U);
  std::cout << "correction seed " << seed << '\n';
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(1 / 0.7, 0.002);
  EstimateCorrection correction({512}, 0.05);
  int missed = 0;
  int missed_late = 0;
  constexpr int kBatches = 20000;
  for (int i = 0; i < kBatches; ++i) {
    const bool miss = correction.Observe(512, kEstimate, Times(noise(random)));
    missed += miss ? 1 : 0;
    if (i >= 50) missed_late += miss ? 1 : 0;
  }
  CHECK(missed_late <= kBatches / 1000 * 2);
  CHECK(missed <= 50);
  CHECK(correction.FactorAt(512) < 1 / 0.7 + 0.03);
}

TEST_CASE("what is reserved is the estimate times the factor, never less for a longer batch", "[correction]") {
  LengthCurve at32{.length = 32, .points = {{.rows = 1, .peak = {1000}}, {.rows = 8, .peak = {8000}}}};
  LengthCurve at64{.length = 64, .points = {{.rows = 1, .peak = {1100}}, {.rows = 8, .peak = {8800}}}};
  const CalibratedEstimator estimator({at32, at64}, PeakRounding{});
  LearnedMemory learned({32, 64}, 0.05);
  const TimePoint now{};
  CHECK(ReservationEstimator(estimator, learned, now).Peak({1, 32}).value() == Bytes{1050});
  CHECK(ReservationEstimator(estimator, learned, now).Peak({1, 65}).status().code() == absl::StatusCode::kOutOfRange);
  learned.correction.Observe(64, {1000}, {1000});
  learned.correction.Observe(32, {1000}, {1500});
  const ReservationEstimator needs(estimator, learned, now);
  CHECK(needs.Peak({8, 32}).value() == Bytes{12000});
  CHECK(needs.Peak({8, 64}).value() == Bytes{12000});
}

TEST_CASE("a shape under a ceiling fits nowhere, one row is not held back", "[correction]") {
  const CalibratedEstimator estimator({{.length = 32, .points = {{.rows = 1, .peak = {1000}}, {.rows = 8, .peak = {8000}}}}},
                                      PeakRounding{});
  LearnedMemory learned({32}, 0);
  const TimePoint now = TimePoint{} + std::chrono::seconds(1);
  learned.ceilings.Lower({4, 32}, now);
  const ReservationEstimator needs(estimator, learned, now);
  CHECK(needs.Peak({1, 32}).value() == Bytes{1000});
  CHECK(needs.Peak({2, 32}).value() == Bytes{2000});
  CHECK(needs.Peak({3, 32}).value().count == std::numeric_limits<std::int64_t>::max());
  CHECK(ReservationEstimator(estimator, learned, now + ShapeCeilings::kRelief).Peak({3, 32}).value() == Bytes{3000});
}

}  // namespace
}  // namespace headroom
