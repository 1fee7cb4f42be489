#include "memory/memory_estimator.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

namespace headroom {
namespace {

Measurement At(std::int64_t rows, std::int64_t peak) { return {rows, Bytes{peak}, Duration{0}}; }

LengthCurve Curve(std::int64_t length, std::vector<Measurement> points) {
  LengthCurve curve;
  curve.length = length;
  curve.points = std::move(points);
  return curve;
}

constexpr std::int64_t kAllowance = CalibratedEstimator::kBlocks.between_points.count;

TEST_CASE("a measured point is told exactly", "[estimator]") {
  const CalibratedEstimator estimator({Curve(32, {At(1, 1000), At(2, 2000), At(8, 8000)}), Curve(64, {At(1, 3000), At(8, 17000)})});
  const auto [rows, length, peak] = GENERATE(table<std::int64_t, std::int64_t, std::int64_t>({
      {1, 32, 1000},
      {2, 32, 2000},
      {8, 32, 8000},
      {1, 64, 3000},
      {8, 64, 17000},
  }));
  CAPTURE(rows, length);
  CHECK(estimator.Peak({rows, length}).value().count == peak);
}

TEST_CASE("between two measured points lies their line, and a few rounded blocks more", "[estimator]") {
  const CalibratedEstimator estimator({Curve(32, {At(1, 10000), At(5, 50000), At(6, 50100)})});
  CHECK(estimator.Peak({3, 32}).value().count == 30000 + kAllowance);
  // Never more than at the point above.
  const CalibratedEstimator flat({Curve(32, {At(1, 10000), At(5, 10010)})});
  CHECK(flat.Peak({3, 32}).value().count == 10010);
}

TEST_CASE("beyond the largest measured batch the last line is followed, and a quarter added", "[estimator]") {
  const CalibratedEstimator estimator({Curve(32, {At(1, 10000), At(4, 40000)})});
  CHECK(estimator.Peak({8, 32}).value().count == 100000);
  const CalibratedEstimator one_point({Curve(32, {At(1, 10000)})});
  CHECK(one_point.Peak({2, 32}).value().count == 25000);
}

TEST_CASE("rows that did not fit are never said to need less than they took", "[estimator]") {
  LengthCurve curve = Curve(32, {At(1, 10000), At(2, 20000)});
  curve.failed_rows = 4;
  curve.failed_at_least = Bytes{90000};
  const CalibratedEstimator estimator({curve});
  CHECK(estimator.Peak({2, 32}).value().count == 20000);
  // Where between two and four rows the step up is, nobody knows.
  CHECK(estimator.Peak({3, 32}).value().count == 90000);
  CHECK(estimator.Peak({4, 32}).value().count == 90000);
  CHECK(estimator.Peak({5, 32}).value().count == 90000);
}

TEST_CASE("a length in between is taken as the next longer one, unless it was seen to be smooth", "[estimator]") {
  LengthCurve upper = Curve(64, {At(1, 40000), At(2, 80000)});
  const std::vector<LengthCurve> curves = {Curve(32, {At(1, 20000), At(2, 40000)}), upper};
  CHECK(CalibratedEstimator(curves).Peak({1, 48}).value().count == 40000);
  upper.smooth_below = true;
  CHECK(CalibratedEstimator({curves[0], upper}).Peak({1, 48}).value().count == 30000 + kAllowance);
  CHECK(CalibratedEstimator({curves[0], upper}).Peak({1, 64}).value().count == 40000);
}

TEST_CASE("a length below the shortest measured one is taken as that one", "[estimator]") {
  CHECK(CalibratedEstimator({Curve(32, {At(1, 20000)})}).Peak({1, 8}).value().count == 20000);
}

TEST_CASE("a length beyond the longest measured one is out of range, and told", "[estimator]") {
  const auto peak = CalibratedEstimator({Curve(32, {At(1, 20000)})}).Peak({1, 33});
  CHECK(peak.status().code() == absl::StatusCode::kOutOfRange);
  CHECK_THAT(std::string(peak.status().message()), Catch::Contains("33") && Catch::Contains("32"));
}

TEST_CASE("a length of which not one row fitted is bounded from below", "[estimator]") {
  LengthCurve unfit = Curve(128, {});
  unfit.failed_rows = 1;
  unfit.failed_at_least = Bytes{50000};
  // By the failed attempt, and by the longest length that fitted, in proportion.
  CHECK(CalibratedEstimator({Curve(64, {At(1, 20000)}), unfit}).Peak({1, 128}).value().count == 50000);
  CHECK(CalibratedEstimator({Curve(64, {At(1, 40000)}), unfit}).Peak({1, 128}).value().count == 80000);
}

TEST_CASE("fixed shapes have one curve, at length 0", "[estimator]") {
  const CalibratedEstimator estimator({Curve(0, {At(1, 1000), At(4, 4000)})});
  CHECK(estimator.Peak({4, 0}).value().count == 4000);
}

TEST_CASE("another rounding asks for another allowance", "[estimator]") {
  const std::vector<LengthCurve> curves = {Curve(32, {At(1, 1000000), At(5, 5000000)})};
  CHECK(CalibratedEstimator(curves, {Bytes{7}, Bytes{0}}).Peak({3, 32}).value().count == 3000007);
  CHECK(CalibratedEstimator(curves, CalibratedEstimator::kSegments).Peak({3, 32}).value().count == 3000000 + MiB(20).count);
  CHECK(CalibratedEstimator(curves, CalibratedEstimator::kSegments).Peak({5, 32}).value().count == 5000000);
}

// Peak memory as a maximum over program points; at each, several blocks are alive, each affine in rows at a given length,
// quadratic in length, and rounded up to 512 bytes.
class RandomMemory {
 public:
  explicit RandomMemory(std::mt19937_64& random) {
    const auto up_to = [&](double most) { return std::uniform_real_distribution<double>(0, most)(random); };
    points_.resize(1 + random() % 4);
    for (auto& blocks : points_) {
      blocks.resize(1 + random() % 6);
      for (Block& block : blocks) block = {up_to(2e5), up_to(2e4), up_to(800), up_to(random() % 2 == 0 ? 12 : 0)};
    }
  }

  std::int64_t operator()(std::int64_t rows, std::int64_t length) const {
    const auto r = static_cast<double>(rows);
    const auto l = static_cast<double>(length);
    std::int64_t peak = 0;
    for (const auto& blocks : points_) {
      std::int64_t alive = 0;
      for (const Block& block : blocks) {
        const double bytes = block.fixed + r * (block.a_row + block.a_token * l + block.a_pair * l * l);
        alive += static_cast<std::int64_t>(std::ceil(bytes / 512)) * 512;
      }
      peak = std::max(peak, alive);
    }
    return peak;
  }

 private:
  struct Block {
    double fixed = 0;
    double a_row = 0;
    double a_token = 0;
    double a_pair = 0;
  };
  std::vector<std::vector<Block>> points_;
};

TEST_CASE("a shorter length may take other segments than a longer one that was measured", "[estimator]") {
  const std::vector<LengthCurve> curves = {Curve(32, {At(1, 1'000'000), At(9, 40'000'000)}), Curve(64, {At(3, 2'000'000)})};
  const PeakRounding rounding{Bytes{100}, Bytes{5'000'000}};
  CHECK(CalibratedEstimator(curves, rounding).Peak({3, 64}).value().count == 2'000'000);
  CHECK(CalibratedEstimator(curves, rounding).Peak({3, 32}).value().count == 7'000'000);
  CHECK(CalibratedEstimator(curves, rounding).Peak({3, 40}).value().count == 7'000'000);
  CHECK(CalibratedEstimator(curves, {Bytes{100}, Bytes{0}}).Peak({3, 32}).value().count == 2'000'000);
}

TEST_CASE("exact where measured, never under within it, monotone: for any maximum of affine and quadratic blocks",
          "[estimator][property]") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int repeat = 0; repeat < 60; ++repeat) {
    const RandomMemory memory(random);
    std::vector<LengthCurve> curves;
    for (const std::int64_t length : {16, 64, 128, 256}) {
      std::vector<std::int64_t> measured = {1, 2, 64};
      for (std::uint64_t n = random() % 5; n > 0; --n) measured.push_back(3 + static_cast<std::int64_t>(random() % 61));
      std::sort(measured.begin(), measured.end());
      measured.erase(std::unique(measured.begin(), measured.end()), measured.end());
      LengthCurve curve = Curve(length, {});
      for (const std::int64_t rows : measured) curve.points.push_back(At(rows, memory(rows, length)));
      curve.smooth_below = random() % 2 == 0;
      curves.push_back(std::move(curve));
    }
    const CalibratedEstimator estimator(curves);

    for (const LengthCurve& curve : curves) {
      for (const Measurement& point : curve.points) {
        REQUIRE(estimator.Peak({point.rows, curve.length}).value() == point.peak);
      }
    }
    for (const std::int64_t length : {1, 16, 17, 40, 64, 100, 128, 129, 200, 256}) {
      for (std::int64_t rows = 1; rows <= 64; ++rows) {
        CAPTURE(repeat, rows, length);
        REQUIRE(estimator.Peak({rows, length}).value().count >= memory(rows, length));
      }
    }
  }
}

TEST_CASE("the estimate is monotone in rows and in length, whatever was measured", "[estimator][property]") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int repeat = 0; repeat < 150; ++repeat) {
    std::vector<LengthCurve> curves;
    for (const std::int64_t length : {8, 24, 32, 48, 64}) {
      LengthCurve curve = Curve(length, {});
      curve.smooth_below = random() % 2 == 0;
      for (const std::int64_t rows : {1, 2, 4, 9, 20, 32}) {
        if (rows > 1 && random() % 4 == 0) break;
        curve.points.push_back(At(rows, static_cast<std::int64_t>(random() % 1000000)));
      }
      if (length > 8 && random() % 8 == 0) curve.points.clear();
      if (random() % 4 == 0) {
        curve.failed_rows = curve.points.empty() ? 1 : curve.points.back().rows + 3;
        curve.failed_at_least = Bytes{static_cast<std::int64_t>(random() % 1000000)};
      }
      curves.push_back(std::move(curve));
    }
    const CalibratedEstimator estimator(curves);
    for (std::int64_t length = 1; length <= 64; ++length) {
      for (std::int64_t rows = 1; rows <= 40; ++rows) {
        CAPTURE(repeat, rows, length);
        const Bytes peak = estimator.Peak({rows, length}).value();
        if (rows > 1) REQUIRE(estimator.Peak({rows - 1, length}).value() <= peak);
        if (length > 1) REQUIRE(estimator.Peak({rows, length - 1}).value() <= peak);
      }
    }
  }
}

}  // namespace
}  // namespace headroom
