#include "batching/latency_model.h"

#include <algorithm>
#include <cmath>

namespace headroom {
namespace {

constexpr double kForgetting = 0.97;
// In batches: how many it takes to outweigh the belief that the calibration's proportions hold.
constexpr double kPullToScaleOne = 0.1;
// A batch counts as no further from what was foreseen than so many times the usual deviation, once a few are known.
constexpr double kStray = 8;
constexpr double kKnownFrom = 5;
constexpr double kLeastDeviation = 0.05;

// A fit may be below nothing.
Duration AtLeastZero(double seconds) { return FromSeconds(std::max(0.0, seconds)); }

double Interpolate(double from, double to, double share) { return from + (to - from) * share; }

}  // namespace

CalibratedLatency::CalibratedLatency(const std::vector<LengthCurve>& curves) {
  for (const LengthCurve& measured : curves) {
    Curve curve{measured.length, 0, {}};
    for (const Measurement& point : measured.points) {
      double seconds = Seconds(point.latency);
      if (!curve.points.empty()) {
        const Point& fewer = curve.points.back();
        const double in_proportion = fewer.seconds * static_cast<double>(point.rows) / static_cast<double>(fewer.rows);
        seconds = std::clamp(seconds, fewer.seconds, in_proportion);
      }
      curve.points.push_back({point.rows, seconds});
    }
    if (curve.points.empty()) continue;
    curve.most_rows = curve.points.back().rows;
    if (!curves_.empty()) curve = NotBelow(curve, curves_.back());
    curves_.push_back(std::move(curve));
  }
}

// `curve`, but nowhere quicker than a shorter length: a point at every number of rows that either knows, the greater of the two.
CalibratedLatency::Curve CalibratedLatency::NotBelow(const Curve& curve, const Curve& shorter) {
  std::vector<std::int64_t> rows;
  for (const Curve* const of : {&curve, &shorter}) {
    for (const Point& point : of->points) rows.push_back(point.rows);
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  Curve merged{curve.length, curve.most_rows, {}};
  for (const std::int64_t r : rows) merged.points.push_back({r, std::max(Along(curve, r), Along(shorter, r))});
  return merged;
}

double CalibratedLatency::Along(const Curve& curve, std::int64_t rows) {
  const auto& points = curve.points;
  const auto above =
      std::lower_bound(points.begin(), points.end(), rows, [](const Point& point, std::int64_t r) { return point.rows < r; });
  if (above == points.end()) return points.back().seconds * static_cast<double>(rows) / static_cast<double>(points.back().rows);
  if (above->rows == rows || above == points.begin()) return above->seconds;
  const Point& below = *(above - 1);
  return Interpolate(below.seconds, above->seconds,
                     static_cast<double>(rows - below.rows) / static_cast<double>(above->rows - below.rows));
}

Duration CalibratedLatency::Of(BatchShape shape) const {
  if (curves_.empty()) return Duration::zero();
  const auto above = std::lower_bound(curves_.begin(), curves_.end(), shape.length,
                                      [](const Curve& curve, std::int64_t length) { return curve.length < length; });
  if (above == curves_.end()) {
    const double longer = static_cast<double>(shape.length) / static_cast<double>(std::max<std::int64_t>(1, curves_.back().length));
    return AtLeastZero(Seconds(Of({shape.rows, curves_.back().length})) * longer);
  }
  const double longer = Along(*above, shape.rows);
  if (above->length == shape.length || above == curves_.begin()) return AtLeastZero(longer);
  const Curve& below = *(above - 1);
  return AtLeastZero(
      Interpolate(Along(below, shape.rows), longer,
                  static_cast<double>(shape.length - below.length) / static_cast<double>(above->length - below.length)));
}

std::int64_t CalibratedLatency::MostRows(std::int64_t length) const {
  if (curves_.empty()) return 1;
  const auto above =
      std::lower_bound(curves_.begin(), curves_.end(), length, [](const Curve& curve, std::int64_t l) { return curve.length < l; });
  const Curve& curve = above == curves_.end() ? curves_.back() : *above;
  return std::max<std::int64_t>(1, curve.most_rows);
}

Duration BatchTimes::Of(BatchShape shape) const { return fixed_ + AtLeastZero(scale_ * Seconds(calibrated_->Of(shape))); }

BatchTimes LatencyModel::times() const {
  const Line now = line();
  return BatchTimes(calibrated_, std::max(now.fixed, kBesideRun), now.scale);
}

Duration LatencyModel::Of(BatchShape shape) const {
  const Line now = line();
  return BatchTimes(calibrated_, now.fixed, now.scale).Of(shape);
}

Duration LatencyModel::AtMost(BatchShape shape) const {
  const double calibrated = Seconds(calibrated_.Of(shape));
  MutexLock lock(mutex_);
  const double foreseen = fixed_ + scale_ * calibrated;
  const double mean = sums_.weight > 0 ? sums_.y / sums_.weight : 0;
  const double share = mean > 0 ? std::max(kLeastDeviation, sums_.deviation / sums_.weight / mean) : kLeastDeviation;
  return AtLeastZero(foreseen * (1 + 2 * share));
}

LatencyModel::Line LatencyModel::line() const {
  MutexLock lock(mutex_);
  return {AtLeastZero(fixed_), scale_};
}

void LatencyModel::Observe(BatchShape shape, Duration took) {
  const double x = Seconds(calibrated_.Of(shape));
  double y = Seconds(took);
  MutexLock lock(mutex_);
  const double foreseen = fixed_ + scale_ * x;
  if (sums_.weight > kKnownFrom) {
    const double most = kStray * sums_.deviation / sums_.weight;
    y = std::clamp(y, foreseen - most, foreseen + most);
  }
  for (double* sum : {&sums_.weight, &sums_.x, &sums_.y, &sums_.xx, &sums_.xy, &sums_.deviation}) *sum *= kForgetting;
  sums_.weight += 1;
  sums_.x += x;
  sums_.y += y;
  sums_.xx += x * x;
  sums_.xy += x * y;
  // Never nothing, or a run of equal times would make every other one a stray.
  sums_.deviation += std::max(std::abs(y - foreseen), kLeastDeviation * y);
  Fit();
}

// The least of Σ w (y − fixed − scale x)² + pull (scale − 1)², where neither may be negative.
void LatencyModel::Fit() {
  const double mean_x = sums_.x / sums_.weight;
  const double mean_y = sums_.y / sums_.weight;
  const double pull = kPullToScaleOne * mean_x * mean_x;
  const double spread = sums_.xx - sums_.x * mean_x;
  const double together = sums_.xy - sums_.x * mean_y;
  scale_ = spread + pull > 0 ? std::max(0.0, (together + pull) / (spread + pull)) : 1;
  fixed_ = mean_y - scale_ * mean_x;
  if (fixed_ >= 0) return;
  fixed_ = 0;
  scale_ = sums_.xx > 0 ? sums_.xy / sums_.xx : 1;
}

}  // namespace headroom
