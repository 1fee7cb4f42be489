// Measures a model's peak memory at a few well chosen shapes.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <stop_token>
#include <vector>

#include "memory/memory_estimator.h"
#include "runtime/device.h"

namespace headroom {

// What is to be known about a model.
struct CalibrationPlan {
  struct Length {
    std::int64_t length = 0;    // a bucket, or a longer limit of rows that run alone
    std::int64_t max_rows = 1;  // the largest batch at it
    std::int64_t step = 0;      // lengths down to the one before occur in multiples of this; 0: as CalibrationPlan::step says
  };
  std::vector<Length> lengths;  // ascending; {0, rows} alone for a model of fixed shapes
  // Lengths between these occur in multiples of this; 0 where batches are padded to the lengths above only.
  std::int64_t step = 0;
};

struct Calibration {
  std::vector<LengthCurve> curves;  // ascending in length
  Bytes limit{0};                   // no probe went beyond this
  bool cut_short = false;           // some shapes did not fit the limit: with a larger one there is more to know
};

// The curves of the bytes in tensors instead of those that an allocator holds for them, which a run tells where nothing ran beside
// it. Shapes that did not fit have told nothing of these.
std::vector<LengthCurve> TensorCurves(const Calibration& calibration);

// One run of a batch of this shape from an empty cache, held to the limit.
using Probe = std::function<RunResult(BatchShape)>;
// Told before each length: how many of how many are done, and which comes.
using CalibrationProgress = std::function<void(std::size_t done, std::size_t total, std::int64_t length)>;

// Probes the largest length first (what fragments a cache is met on a clean one), at each rows ∈ {1, 2, mid, max}, and bisects
// in rows, then in length where `plan.step` says so, until neighbours predict a point between them within 1 %.
//
// INTERNAL where a probe fails otherwise than for memory; CANCELLED once `stop` is asked for; RESOURCE_EXHAUSTED where not even
// one row of the shortest length fits `limit`.
absl::StatusOr<Calibration> Calibrate(const CalibrationPlan& plan, Bytes limit, const Probe& probe,
                                      const CalibrationProgress& progress, std::stop_token stop);

}  // namespace headroom
