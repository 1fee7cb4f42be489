#include "memory/memory_estimator.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/status_macros.h"

namespace headroom {
namespace {

// The line through `a` and `b` at `rows`, rounded up.
Bytes OnLine(const Measurement& a, const Measurement& b, std::int64_t rows) {
  if (a.rows == b.rows) return b.peak;
  const double slope = static_cast<double>((b.peak - a.peak).count) / static_cast<double>(b.rows - a.rows);
  return {static_cast<std::int64_t>(std::ceil(static_cast<double>(a.peak.count) + slope * static_cast<double>(rows - a.rows)))};
}

// The line that `points` begin with, at `rows`; through the origin where there is one point.
Bytes OnFirstLine(const std::vector<Measurement>& points, std::int64_t rows) {
  return points.size() == 1 ? OnLine({}, points[0], rows) : OnLine(points[0], points[1], rows);
}

Bytes OnLastLine(const std::vector<Measurement>& points, std::int64_t rows) {
  const std::size_t last = points.size() - 1;
  return last == 0 ? OnLine({}, points[0], rows) : OnLine(points[last - 1], points[last], rows);
}

}  // namespace

CalibratedEstimator::CalibratedEstimator(std::vector<LengthCurve> curves, Bytes rounding_allowance)
    : curves_(std::move(curves)), rounding_allowance_(rounding_allowance) {
  for (LengthCurve& curve : curves_) {
    measured_.push_back(curve.points.size());
    Bytes highest{0};
    for (Measurement& point : curve.points) highest = point.peak = std::max(highest, point.peak);
  }
  for (std::size_t i = 0; i < curves_.size(); ++i) {
    if (curves_[i].few_rows && !curves_[i].points.empty()) FollowNeighbours(i);
  }
}

// Adds a point wherever a fully measured neighbour has one beyond the few rows: on the curve's own last line, lifted as its
// neighbours are from theirs, but never above the longer one.
void CalibratedEstimator::FollowNeighbours(std::size_t index) {
  std::vector<Measurement>& points = curves_[index].points;
  std::set<std::int64_t> rows;
  for (const bool above : {false, true}) {
    for (const Measurement& point : curves_[NeighbourMeasuredFully(index, above)].points) {
      if (point.rows > points.back().rows) rows.insert(point.rows);
    }
  }
  const std::vector<Measurement> measured = points;
  const std::size_t longer = NeighbourMeasuredFully(index, /*above=*/true);
  for (const std::int64_t r : rows) {
    Bytes peak = Scale(OnLastLine(measured, r), DepartureFromLine(index, r)) + rounding_allowance_;
    if (longer != index) peak = std::min(peak, AlongCurve(longer, r));
    points.push_back({r, std::max(points.back().peak, peak), Duration{0}});
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
  const Bytes upper = OnCurve(index, shape.rows);
  if (above->length == shape.length || index == 0 || !above->smooth_below) return upper;
  const LengthCurve& below = curves_[index - 1];
  const double share = static_cast<double>(shape.length - below.length) / static_cast<double>(above->length - below.length);
  const Bytes lower = OnCurve(index - 1, shape.rows);
  return std::min(upper, lower + Scale(upper - lower, share) + rounding_allowance_);
}

// What a curve says, held between what was measured on shorter ones, at no more rows, and what longer ones say: memory is monotone,
// and an interpolation may be far above it. So a measured point is told as it was measured.
Bytes CalibratedEstimator::OnCurve(std::size_t curve, std::int64_t rows) const {
  Bytes at_most = AlongCurve(curve, rows);
  for (std::size_t i = curve + 1; i < curves_.size(); ++i) at_most = std::min(at_most, AlongCurve(i, rows));
  Bytes at_least{0};
  for (std::size_t i = 0; i <= curve; ++i) at_least = std::max(at_least, MeasuredBelow(i, rows));
  return std::max(at_most, at_least);
}

// The largest peak that was measured on the curve at no more than `rows`.
Bytes CalibratedEstimator::MeasuredBelow(std::size_t curve, std::int64_t rows) const {
  const auto& points = curves_[curve].points;
  const auto beyond = std::upper_bound(points.begin(), points.begin() + static_cast<std::ptrdiff_t>(measured_[curve]), rows,
                                       [](std::int64_t r, const Measurement& point) { return r < point.rows; });
  return beyond == points.begin() ? Bytes{0} : (beyond - 1)->peak;
}

Bytes CalibratedEstimator::AlongCurve(std::size_t index, std::int64_t rows) const {
  const LengthCurve& curve = curves_[index];
  if (curve.points.empty()) {
    // At least the failed attempt, and at least in proportion to the length of the longest that fitted; both only bounds from
    // below, which is what a refusal must rest on.
    Bytes bound = Scale(curve.failed_at_least, static_cast<double>(rows));
    for (std::size_t i = index; i-- > 0;) {
      if (curves_[i].points.empty()) continue;
      const double longer = static_cast<double>(curve.length) / static_cast<double>(std::max<std::int64_t>(1, curves_[i].length));
      return std::max(bound, Scale(AlongCurve(i, rows), longer));
    }
    return bound;
  }
  const auto& points = curve.points;
  // From the first row beyond what fitted: where an allocator takes memory in large pieces, the step up may lie anywhere between
  // the last attempt that fitted and the one that did not.
  const std::int64_t fitted = points[measured_[index] - 1].rows;
  const Bytes took = curve.failed_rows > 0 && rows > fitted ? curve.failed_at_least : Bytes{0};
  const auto above =
      std::lower_bound(points.begin(), points.end(), rows, [](const Measurement& point, std::int64_t r) { return point.rows < r; });
  if (above == points.end()) {
    return std::max({took, points.back().peak, Scale(OnLastLine(points, rows), kBeyondMeasured)});
  }
  if (above->rows == rows || above == points.begin()) return std::max(took, above->peak);
  return std::max(took, std::min(above->peak, OnLine(*(above - 1), *above, rows) + rounding_allowance_));
}

// By how much the fully measured neighbours, above and below in length, leave the line of their first points at `rows`; ≥ 1.
double CalibratedEstimator::DepartureFromLine(std::size_t curve, std::int64_t rows) const {
  double departure = 1;
  for (const bool above : {false, true}) {
    const std::size_t neighbour = NeighbourMeasuredFully(curve, above);
    if (neighbour == curve) continue;
    const Bytes line = OnFirstLine(curves_[neighbour].points, rows);
    if (line.count <= 0) continue;
    departure = std::max(departure, static_cast<double>(AlongCurve(neighbour, rows).count) / static_cast<double>(line.count));
  }
  return departure;
}

// `curve` itself where there is none.
std::size_t CalibratedEstimator::NeighbourMeasuredFully(std::size_t curve, bool above) const {
  for (std::size_t i = curve; above ? ++i < curves_.size() : i-- > 0;) {
    if (!curves_[i].few_rows && !curves_[i].points.empty()) return i;
  }
  return curve;
}

absl::StatusOr<Bytes> EstimatorWithMargin::Peak(BatchShape shape) const {
  ASSIGN_OR_RETURN(const Bytes peak, estimator_.Peak(shape));
  return Scale(peak, 1 + margin_);
}

}  // namespace headroom
