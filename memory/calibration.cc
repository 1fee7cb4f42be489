#include "memory/calibration.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "base/status_macros.h"

namespace headroom {
namespace {

constexpr double kAgreement = 0.01;
// What an allocator's rounding may lift a small peak by; an estimate between two lengths has as much on top.
constexpr Bytes kRounding = CalibratedEstimator::kBlocks.between_points;

bool Agree(Bytes predicted, Bytes measured) {
  return std::abs(static_cast<double>((predicted - measured).count)) <= kAgreement * static_cast<double>(measured.count);
}

// The line through `a` and `b` at `rows`.
Bytes OnLine(const Measurement& a, const Measurement& b, std::int64_t rows) {
  const double share = static_cast<double>(rows - a.rows) / static_cast<double>(b.rows - a.rows);
  return a.peak + Scale(b.peak - a.peak, share);
}

// One calibration under way.
class Calibrator {
 public:
  Calibrator(Bytes limit, const Probe& probe, std::stop_token stop) : limit_(limit), probe_(probe), stop_(std::move(stop)) {}

  absl::StatusOr<LengthCurve> MeasureFully(const CalibrationPlan::Length& length);
  // The curves strictly between `below` and `above`, ascending; sets smooth_below on them and on `above`. `wanted` says how many
  // rows occur there, and in which steps.
  absl::StatusOr<std::vector<LengthCurve>> MeasureBetween(const LengthCurve& below, LengthCurve& above,
                                                          const CalibrationPlan::Length& wanted);

  // A length inside a bucket: fewer probes, as most of these are on a line.
  absl::StatusOr<LengthCurve> MeasureInside(std::int64_t length, std::int64_t max_rows);

  bool cut_short() const { return cut_short_; }

 private:
  // The curves below `middle`, itself, and those above it.
  absl::StatusOr<std::vector<LengthCurve>> Halves(const LengthCurve& below, LengthCurve middle, LengthCurve& above,
                                                  const CalibrationPlan::Length& wanted);
  // Measures a point into the curve; false, noted in the curve, where it does not fit the limit.
  absl::StatusOr<bool> Measure(LengthCurve& curve, std::int64_t rows);
  // The largest batch up to `max_rows`, measured; the curve begins with one and two rows.
  absl::Status MeasureLargest(LengthCurve& curve, std::int64_t max_rows);
  absl::Status BisectRows(LengthCurve& curve, std::int64_t low, std::int64_t high);

  const Bytes limit_;
  const Probe& probe_;
  const std::stop_token stop_;
  bool cut_short_ = false;
};

const Measurement& PointAt(const LengthCurve& curve, std::int64_t rows) {
  return *std::find_if(curve.points.begin(), curve.points.end(), [&](const Measurement& p) { return p.rows == rows; });
}

// By straight lines between the points of `curve`; `rows` is within them.
Bytes AlongPoints(const LengthCurve& curve, std::int64_t rows) {
  const auto above = std::find_if(curve.points.begin(), curve.points.end(), [&](const Measurement& p) { return p.rows >= rows; });
  return above->rows == rows || above == curve.points.begin() ? above->peak : OnLine(*(above - 1), *above, rows);
}

absl::StatusOr<bool> Calibrator::Measure(LengthCurve& curve, std::int64_t rows) {
  if (stop_.stop_requested()) return absl::CancelledError("calibration was stopped");
  const RunResult result = probe_({rows, curve.length});
  if (const auto* full = std::get_if<OutOfMemory>(&result)) {
    curve.failed_rows = rows;
    // It asked for more than the limit, whatever it had got hold of when it failed.
    curve.failed_at_least = std::max(full->at_least, limit_ + Bytes{1});
    cut_short_ = true;
    return false;
  }
  if (const auto* error = std::get_if<ModelError>(&result)) {
    return absl::InternalError(absl::StrCat("the model fails on ", rows, " rows of length ", curve.length, ": ", error->text));
  }
  if (const auto* lost = std::get_if<DeviceLost>(&result)) {
    return absl::InternalError(absl::StrCat("the device was lost while calibrating: ", lost->text));
  }
  const auto& output = std::get<RunOutput>(result);
  if (!output.peak) return absl::InternalError("a probe did not measure its peak: something else ran on the device");
  const Measurement point{rows, *output.peak, output.compute, *output.tensor_peak()};
  const auto at = std::find_if(curve.points.begin(), curve.points.end(), [&](const Measurement& p) { return p.rows > rows; });
  curve.points.insert(at, point);
  return true;
}

absl::StatusOr<LengthCurve> Calibrator::MeasureFully(const CalibrationPlan::Length& length) {
  LengthCurve curve;
  curve.length = length.length;
  for (const std::int64_t rows : {1, 2}) {
    if (rows > length.max_rows) break;
    ASSIGN_OR_RETURN(const bool fits, Measure(curve, rows));
    if (!fits) return curve;
  }
  if (length.max_rows <= 2) return curve;
  RETURN_IF_ERROR(MeasureLargest(curve, length.max_rows));
  const std::int64_t largest = curve.points.back().rows;
  if (largest > 2) RETURN_IF_ERROR(BisectRows(curve, 2, largest));
  return curve;
}

absl::Status Calibrator::MeasureLargest(LengthCurve& curve, std::int64_t max_rows) {
  // The line through the first and the largest point says how far the next probe may go, a little less since the line may be left
  // upwards. Repeated: where an allocator takes memory in large pieces, the first two points alone say little. Where a probe did
  // not fit, the next goes most of the way to it, until what is left between would change a batch by little.
  constexpr int kAttempts = 8;
  constexpr double kLittle = 0.03;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Measurement first = curve.points.front();
    const Measurement last = curve.points.back();
    const double slope =
        std::max(1.0, static_cast<double>((last.peak - first.peak).count) / static_cast<double>(last.rows - first.rows));
    const double room = 0.98 * static_cast<double>(limit_.count) - static_cast<double>(last.peak.count);
    const double fitting = static_cast<double>(last.rows) + room / slope;
    auto rows = static_cast<std::int64_t>(std::min(static_cast<double>(max_rows), fitting));
    if (curve.failed_rows > 0) {
      const std::int64_t unknown = curve.failed_rows - last.rows;
      if (static_cast<double>(unknown) <= kLittle * static_cast<double>(last.rows)) break;
      rows = std::min(rows, last.rows + unknown * 3 / 4);
    }
    if (rows <= last.rows) break;
    RETURN_IF_ERROR(Measure(curve, rows).status());
  }
  if (curve.points.back().rows < max_rows) cut_short_ = true;
  return absl::OkStatus();
}

absl::Status Calibrator::BisectRows(LengthCurve& curve, std::int64_t low, std::int64_t high) {
  if (high - low < 2) return absl::OkStatus();
  const std::int64_t middle = low + (high - low) / 2;
  const Bytes predicted = OnLine(PointAt(curve, low), PointAt(curve, high), middle);
  ASSIGN_OR_RETURN(const bool fits, Measure(curve, middle));
  // Fewer rows than a batch that fitted: a neighbour on the device has taken memory meanwhile.
  if (!fits) return absl::InternalError("the memory free on the device shrank during calibration");
  if (Agree(predicted, PointAt(curve, middle).peak)) return absl::OkStatus();
  RETURN_IF_ERROR(BisectRows(curve, low, middle));
  return BisectRows(curve, middle, high);
}

absl::StatusOr<LengthCurve> Calibrator::MeasureInside(std::int64_t length, std::int64_t max_rows) {
  LengthCurve curve;
  curve.length = length;
  for (const std::int64_t rows : {1, 2}) {
    if (rows > max_rows) return curve;
    ASSIGN_OR_RETURN(const bool fits, Measure(curve, rows));
    if (!fits) return curve;
  }
  if (max_rows <= 2) return curve;
  RETURN_IF_ERROR(MeasureLargest(curve, max_rows));
  // A peak is convex in rows: where the largest batch is on the line of the smallest two, so is all between.
  const Measurement largest = curve.points.back();
  if (largest.rows > 2 && !Agree(OnLine(curve.points[0], curve.points[1], largest.rows), largest.peak)) {
    RETURN_IF_ERROR(BisectRows(curve, 2, largest.rows));
  }
  return curve;
}

absl::StatusOr<std::vector<LengthCurve>> Calibrator::MeasureBetween(const LengthCurve& below, LengthCurve& above,
                                                                    const CalibrationPlan::Length& wanted) {
  std::vector<LengthCurve> curves;
  const std::int64_t step = wanted.step;
  const std::int64_t middle = (below.length + above.length) / 2 / step * step;
  if (middle <= below.length || middle >= above.length) {
    above.smooth_below = true;  // no length in between can occur
    return curves;
  }
  if (below.points.empty()) return curves;  // nothing longer fits either
  ASSIGN_OR_RETURN(LengthCurve curve, MeasureInside(middle, wanted.max_rows));
  if (curve.points.empty() || above.points.empty()) {
    // Nothing to interpolate: closes in on the longest row that fits.
    return Halves(below, std::move(curve), above, wanted);
  }
  const double share = static_cast<double>(middle - below.length) / static_cast<double>(above.length - below.length);
  // At the most rows that all three know, and at one, where rounding is all that a small peak may differ by.
  const std::int64_t most = std::min({below.points.back().rows, curve.points.back().rows, above.points.back().rows});
  const auto smooth = [&](std::int64_t rows) {
    const Bytes low = AlongPoints(below, rows);
    const Bytes predicted = low + Scale(AlongPoints(above, rows) - low, share);
    const Bytes measured = AlongPoints(curve, rows);
    return Agree(predicted, measured) || (rows == 1 && measured <= predicted + kRounding && predicted <= measured + kRounding);
  };
  if (smooth(most) && smooth(1)) {
    curve.smooth_below = above.smooth_below = true;
    curves.push_back(std::move(curve));
    return curves;
  }
  return Halves(below, std::move(curve), above, wanted);
}

absl::StatusOr<std::vector<LengthCurve>> Calibrator::Halves(const LengthCurve& below, LengthCurve middle, LengthCurve& above,
                                                            const CalibrationPlan::Length& wanted) {
  ASSIGN_OR_RETURN(std::vector<LengthCurve> curves, MeasureBetween(below, middle, wanted));
  ASSIGN_OR_RETURN(std::vector<LengthCurve> upper, MeasureBetween(middle, above, wanted));
  curves.push_back(std::move(middle));
  std::move(upper.begin(), upper.end(), std::back_inserter(curves));
  return curves;
}

}  // namespace

std::vector<LengthCurve> TensorCurves(const Calibration& calibration) {
  std::vector<LengthCurve> curves = calibration.curves;
  for (LengthCurve& curve : curves) {
    for (Measurement& point : curve.points) point.peak = point.tensors;
    // What did not fit was measured by what the allocator would have held.
    curve.failed_rows = 0;
    curve.failed_at_least = {0};
  }
  return curves;
}

absl::StatusOr<Calibration> Calibrate(const CalibrationPlan& plan, Bytes limit, const Probe& probe,
                                      const CalibrationProgress& progress, std::stop_token stop) {
  Calibrator calibrator(limit, probe, std::move(stop));
  std::vector<LengthCurve> measured;  // descending in length
  for (std::size_t done = 0; done < plan.lengths.size(); ++done) {
    const auto& length = plan.lengths[plan.lengths.size() - 1 - done];
    progress(done, plan.lengths.size(), length.length);
    ASSIGN_OR_RETURN(LengthCurve curve, calibrator.MeasureFully(length));
    measured.push_back(std::move(curve));
  }
  std::reverse(measured.begin(), measured.end());
  if (measured.front().points.empty()) {
    return absl::ResourceExhaustedError(absl::StrCat("one row of length ", measured.front().length, " needs more than the ",
                                                     limit.count, " bytes that batches may use"));
  }

  Calibration calibration;
  calibration.limit = limit;
  const bool inside_buckets = plan.step > 0;
  if (inside_buckets && measured.front().length > plan.step) {
    ASSIGN_OR_RETURN(LengthCurve shortest, calibrator.MeasureInside(plan.step, plan.lengths.front().max_rows));
    calibration.curves.push_back(std::move(shortest));
  }
  for (std::size_t i = 0; i < measured.size(); ++i) {
    CalibrationPlan::Length wanted = plan.lengths[i];
    if (wanted.step == 0) wanted.step = plan.step;
    if (wanted.step > 0 && !calibration.curves.empty()) {
      ASSIGN_OR_RETURN(std::vector<LengthCurve> between, calibrator.MeasureBetween(calibration.curves.back(), measured[i], wanted));
      std::move(between.begin(), between.end(), std::back_inserter(calibration.curves));
    }
    calibration.curves.push_back(std::move(measured[i]));
  }
  calibration.cut_short = calibrator.cut_short();
  return calibration;
}

}  // namespace headroom
