#include "memory/memory_estimator.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"

namespace headroom {
namespace {

// The line through `a` and `b` at `rows`, rounded up.
Bytes OnLine(const Measurement& a, const Measurement& b, std::int64_t rows) {
  if (a.rows == b.rows) return b.peak;
  const double slope = static_cast<double>((b.peak - a.peak).count) / static_cast<double>(b.rows - a.rows);
  return {static_cast<std::int64_t>(std::ceil(static_cast<double>(a.peak.count) + slope * static_cast<double>(rows - a.rows)))};
}

Bytes OnLastLine(const std::vector<Measurement>& points, std::int64_t rows) {
  const std::size_t last = points.size() - 1;
  return last == 0 ? OnLine({}, points[0], rows) : OnLine(points[last - 1], points[last], rows);
}

}  // namespace

CalibratedEstimator::CalibratedEstimator(std::vector<LengthCurve> curves, PeakRounding rounding)
    : curves_(std::move(curves)), rounding_(rounding) {
  for (LengthCurve& curve : curves_) {
    Bytes highest{0};
    for (Measurement& point : curve.points) highest = point.peak = std::max(highest, point.peak);
  }
}

absl::StatusOr<Bytes> CalibratedEstimator::Peak(BatchShape shape) const {
  const auto above = std::lower_bound(curves_.begin(), curves_.end(), shape.length,
                                      [](const LengthCurve& curve, std::int64_t length) { return curve.length < length; });
  if (above == curves_.end()) {
    return absl::OutOfRangeError(
        absl::StrCat("no calibration for the length ", shape.length, ", the longest is ", curves_.back().length));
  }
  const auto index = static_cast<std::size_t>(above - curves_.begin());
  if (above->length == shape.length) return OnCurve(index, shape.rows);
  const Bytes upper = OnCurve(index, shape.rows) + rounding_.below_larger;
  if (index == 0 || !above->smooth_below) return upper;
  const LengthCurve& below = curves_[index - 1];
  const double share = static_cast<double>(shape.length - below.length) / static_cast<double>(above->length - below.length);
  return std::min(upper, Between(index, share, shape.rows));
}

// Between the curve before and this one, at `share` of the way.
Bytes CalibratedEstimator::Between(std::size_t index, double share, std::int64_t rows) const {
  const auto straight = [&](std::int64_t r) {
    const Bytes lower = OnCurve(index - 1, r);
    // The allowance counts once: what lies between measured rows has it already.
    return std::max(lower + Scale(OnCurve(index, r) - lower, share), PlainBetween(index, share, r) + rounding_.between_points);
  };
  const auto& shorter = curves_[index - 1].points;
  const auto& longer = curves_[index].points;
  const bool beyond_longer = !shorter.empty() && !longer.empty() && rows > longer.back().rows && rows <= shorter.back().rows;
  if (!beyond_longer) return straight(rows);
  // So many rows were measured at the shorter length only, as at the longer one they do not fit. What this length takes more than
  // the shorter one is in proportion what it takes more at the most rows that both know.
  const std::int64_t known = longer.back().rows;
  const Bytes before = AlongCurve(index - 1, known, Bytes{0});
  if (before.count <= 0) return straight(rows);
  const double more =
      static_cast<double>((PlainBetween(index, share, known) + rounding_.between_points).count) / static_cast<double>(before.count);
  return std::min(straight(rows), std::max(straight(known), Scale(OnCurve(index - 1, rows), more * kInProportion)));
}

Bytes CalibratedEstimator::PlainBetween(std::size_t index, double share, std::int64_t rows) const {
  const Bytes lower = AlongCurve(index - 1, rows, Bytes{0});
  return lower + Scale(std::max(Bytes{0}, AlongCurve(index, rows, Bytes{0}) - lower), share);
}

// What a curve says, held between what was measured on shorter ones, at no more rows, and what longer ones say: memory is monotone,
// and an interpolation may be far above it. So a measured point is told as it was measured. What is held in
// segments is monotone but for their sizes.
Bytes CalibratedEstimator::OnCurve(std::size_t curve, std::int64_t rows) const {
  Bytes at_most = AlongCurve(curve, rows, rounding_.between_points);
  for (std::size_t i = curve + 1; i < curves_.size(); ++i) {
    at_most = std::min(at_most, AlongCurve(i, rows, rounding_.between_points) + rounding_.below_larger);
  }
  Bytes at_least{0};
  for (std::size_t i = 0; i <= curve; ++i) at_least = std::max(at_least, MeasuredBelow(i, rows));
  return std::max(at_most, at_least);
}

// The largest peak that was measured on the curve at no more than `rows`.
Bytes CalibratedEstimator::MeasuredBelow(std::size_t curve, std::int64_t rows) const {
  const auto& points = curves_[curve].points;
  const auto beyond =
      std::upper_bound(points.begin(), points.end(), rows, [](std::int64_t r, const Measurement& point) { return r < point.rows; });
  return beyond == points.begin() ? Bytes{0} : (beyond - 1)->peak;
}

Bytes CalibratedEstimator::AlongCurve(std::size_t index, std::int64_t rows, Bytes allowance) const {
  const LengthCurve& curve = curves_[index];
  if (curve.points.empty()) {
    // At least the failed attempt, and at least in proportion to the length of the longest that fitted; both only bounds from
    // below, which is what a refusal must rest on.
    Bytes bound = Scale(curve.failed_at_least, static_cast<double>(rows));
    for (std::size_t i = index; i-- > 0;) {
      if (curves_[i].points.empty()) continue;
      const double longer = static_cast<double>(curve.length) / static_cast<double>(std::max<std::int64_t>(1, curves_[i].length));
      return std::max(bound, Scale(AlongCurve(i, rows, allowance), longer));
    }
    return bound;
  }
  const auto& points = curve.points;
  const auto above =
      std::lower_bound(points.begin(), points.end(), rows, [](const Measurement& point, std::int64_t r) { return point.rows < r; });
  if (above == points.end()) {
    // The failed attempt counts from the first row beyond what fitted: where an allocator takes memory in large pieces, the step up
    // may lie anywhere between the last attempt that fitted and the one that did not.
    return std::max({curve.failed_at_least, points.back().peak, Scale(OnLastLine(points, rows), kBeyondMeasured)});
  }
  if (above->rows == rows) return above->peak;
  if (above == points.begin()) return above->peak + rounding_.below_larger;
  return std::min(above->peak + rounding_.below_larger, OnLine(*(above - 1), *above, rows) + allowance);
}

}  // namespace headroom
