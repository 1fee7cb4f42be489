// How far a model's estimates were off in real batches, and what is reserved on top of them for it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/sync.h"
#include "memory/memory_estimator.h"
#include "memory/shape_ceiling.h"
#include "runtime/device.h"

namespace headroom {

// Learns, for each class of lengths (a bucket), by what factor estimates are to be multiplied.
//
//   factor = max(1 + safety margin, largest actual ÷ estimated seen, adaptive quantile of actual ÷ estimated)
//
// The largest ratio seen is a floor that is never left: peaks repeat. The quantile answers for what has not been seen yet: it is
// moved up by kStep × kLevel after a batch that it did not cover, and down by kStep × (1 − kLevel) after one that it did, so that
// in the long run it fails to cover one batch of 1 / (1 − kLevel), whatever the ratios are distributed like (Gibbs and Candès 2021,
// adaptive conformal inference). A class that has run no batch yet takes the largest factor of those that have: what biases one
// length biases its neighbours.
//
// A ratio is that of a batch whose peak can be told from other batches'; or, after a refused allocation, the least that the batch
// would have held. Thread-safe.
class EstimateCorrection {
 public:
  static constexpr double kLevel = 0.999;
  static constexpr double kStep = 0.02;
  // One figure beyond this is taken for this: it can only be a fault of measurement, and must not close a bucket for ever.
  static constexpr double kLargestRatio = 4;

  // `class_lengths` ascend; a length belongs to the first class that is not shorter. `safety_margin` ≥ 0.
  EstimateCorrection(std::vector<std::int64_t> class_lengths, double safety_margin);

  // A batch padded to `length` was estimated at `estimated` > 0 and took `actual`. Whether that is more than was reserved for it.
  bool Observe(std::int64_t length, Bytes estimated, Bytes actual) EXCLUDES(mutex_);
  // It ran out of memory when it would have held `at_least`; tells nothing where that is below the estimate.
  void ObserveAtLeast(std::int64_t length, Bytes estimated, Bytes at_least) EXCLUDES(mutex_);

  struct ClassFactor {
    std::int64_t length = 0;
    double factor = 1;
  };
  using Factors = std::vector<ClassFactor>;  // ascending in length, at least one
  // A snapshot; cheap, as it is asked for with every row that is admitted and with every plan.
  std::shared_ptr<const Factors> factors() const EXCLUDES(mutex_);

  double FactorAt(std::int64_t length) const EXCLUDES(mutex_) { return ClassAt(*factors(), length)->factor; }
  // The class that `length` belongs to.
  static Factors::const_iterator ClassAt(const Factors& factors, std::int64_t length);

 private:
  struct Class {
    std::int64_t length = 0;
    double largest = 0;
    double quantile = 0;
    bool known = false;
  };
  Class& ClassOf(std::int64_t length) REQUIRES(mutex_);
  double FactorOf(const Class& of) const REQUIRES(mutex_);
  void Publish() REQUIRES(mutex_);

  const double least_;  // 1 + the safety margin

  mutable Mutex mutex_;
  std::vector<Class> classes_ GUARDED_BY(mutex_);
  std::shared_ptr<const Factors> factors_ GUARDED_BY(mutex_);  // of classes_, made anew with each change of them
};

// What is known of a model's memory on one device: measured at load, corrected by every batch since.
struct LearnedMemory {
  LearnedMemory(std::vector<std::int64_t> class_lengths, double safety_margin)
      : correction(std::move(class_lengths), safety_margin) {}

  EstimateCorrection correction;
  ShapeCeilings ceilings;
};

// What to reserve for a batch at a moment: the estimate, corrected; beyond every budget where a ceiling forbids the shape.
class ReservationEstimator final : public MemoryEstimator {
 public:
  // What is passed outlives this object.
  ReservationEstimator(const MemoryEstimator& estimator, const LearnedMemory& learned, TimePoint now);

  absl::StatusOr<Bytes> Peak(BatchShape shape) const override;

 private:
  const MemoryEstimator& estimator_;
  const LearnedMemory& learned_;
  const TimePoint now_;
  const std::shared_ptr<const EstimateCorrection::Factors> factors_;  // one plan is made with one set
};

}  // namespace headroom
