// How long a batch runs: what calibration has measured, corrected by every batch since.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "memory/memory_estimator.h"
#include "runtime/device.h"

namespace headroom {

// Reads a time off measured curves. Constant after construction; thread-safe.
//
// Between two measured points it lies on their line, in rows and in length; beyond the last one it grows in proportion.
// Measurements are noisy: one that is below a smaller shape's counts as that. Asked for every shape of a plan, so that is settled
// at construction.
class CalibratedLatency {
 public:
  // `curves` ascend in length. Lengths of which nothing was measured are told as the nearest shorter one in proportion.
  explicit CalibratedLatency(const std::vector<LengthCurve>& curves);

  // Monotone in rows and in length. 0 where nothing was measured at all.
  Duration Of(BatchShape shape) const;
  // The most rows that were measured at `length`, or at the next longer length that is known: at least 1.
  std::int64_t MostRows(std::int64_t length) const;

 private:
  struct Point {
    std::int64_t rows = 0;
    double seconds = 0;
  };
  struct Curve {
    std::int64_t length = 0;
    std::int64_t most_rows = 0;  // that were measured
    std::vector<Point> points;   // ascending in both; nowhere below the curve before
  };
  static double Along(const Curve& curve, std::int64_t rows);
  static Curve NotBelow(const Curve& curve, const Curve& shorter);

  std::vector<Curve> curves_;  // ascending in length, none empty
};

// How long batches take, as it is known at one moment. Cheap to copy; not to outlive its model.
class BatchTimes {
 public:
  // `calibrated` outlives it.
  explicit BatchTimes(const CalibratedLatency& calibrated, Duration fixed = Duration{0}, double scale = 1)
      : calibrated_(&calibrated), fixed_(fixed), scale_(scale) {}
  // Monotone in rows and in length.
  Duration Of(BatchShape shape) const;

 private:
  const CalibratedLatency* calibrated_;
  Duration fixed_;
  double scale_;
};

// Thread-safe.
//
//   T(shape) = fixed + scale × calibrated(shape)
//
// What is fixed comes with every batch (a launch, a queue in front of the device), what scales comes with its size (a slower or a
// shared machine). Both are fitted to what batches took, the latest ones most (each batch weighs 3 % less than the next one), by
// least squares with a weak pull towards scale 1. So where all batches have been alike, and the two cannot be told apart, what was
// not foreseen is taken for fixed: a larger batch is then expected to be quicker than it may be, never slower. That errs on the
// side that corrects itself, as a batch that is not tried teaches nothing. One stray batch moves the fit by no more than eight
// usual ones.
class LatencyModel {
 public:
  struct Line {
    Duration fixed{0};
    double scale = 1;
  };

  explicit LatencyModel(CalibratedLatency calibrated) : calibrated_(std::move(calibrated)) {}

  Duration Of(BatchShape shape) const EXCLUDES(mutex_);
  // What most batches of `shape` do not exceed: by twice the usual deviation, which is never taken to be below 5 %.
  Duration AtMost(BatchShape shape) const EXCLUDES(mutex_);
  Line line() const EXCLUDES(mutex_);
  // What every batch costs a worker beside its run, at least: planning, copying, waking, answering. Calibration does not see it,
  // and `fixed` shows it only once batches of many sizes have run. Where noise has hidden what a launch costs, batches that take
  // less than √(2 × 4 s × this) = 40 ms (CostOf) are still not cut up.
  static constexpr Duration kBesideRun = std::chrono::microseconds(200);

  // As of now, for one who plans: `fixed` is taken to be kBesideRun at least.
  BatchTimes times() const EXCLUDES(mutex_);
  const CalibratedLatency& calibrated() const { return calibrated_; }

  // A batch of `shape` has taken so long.
  void Observe(BatchShape shape, Duration took) EXCLUDES(mutex_);

 private:
  // Weighted sums over what was observed: x is calibrated, y really took, in seconds.
  struct Sums {
    double weight = 0;
    double x = 0;
    double y = 0;
    double xx = 0;
    double xy = 0;
    double deviation = 0;  // of y from what was foreseen
  };
  void Fit() REQUIRES(mutex_);

  const CalibratedLatency calibrated_;
  mutable Mutex mutex_;
  Sums sums_ GUARDED_BY(mutex_);
  double fixed_ GUARDED_BY(mutex_) = 0;  // seconds
  double scale_ GUARDED_BY(mutex_) = 1;
};

}  // namespace headroom
