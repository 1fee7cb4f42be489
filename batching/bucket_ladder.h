// Which bucket a row's length falls into, and how long a batch of that bucket is padded.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <vector>

#include "memory/calibration.h"
#include "runtime/device.h"

namespace headroom {

// Where a row belongs.
struct Placement {
  std::int64_t bucket = 0;       // the bucket, or the tier's limit for a row that runs alone; 0 for fixed shapes
  std::int64_t kept_length = 0;  // the row's length as it will be run; shorter than it came where it was truncated
  bool alone = false;            // runs as a batch of its own
};

// Constant after construction; thread-safe.
class BucketLadder {
 public:
  // `kind` decides what Padding::kAuto means.
  BucketLadder(const ModelSpec& spec, DeviceKind kind);

  // `length` ≥ 1, or 0 for a model of fixed shapes. INVALID_ARGUMENT naming the length and the limit where it is too long.
  absl::StatusOr<Placement> Place(std::int64_t length) const;

  // The padded length of a batch of `bucket` whose longest row has `longest`.
  std::int64_t PaddedLength(std::int64_t bucket, std::int64_t longest) const;

  // Whether rows of different lengths may share a batch.
  bool mixes_lengths() const { return mixes_lengths_; }
  std::int64_t longest() const;

  // The shapes that a model with this ladder can be asked to run.
  CalibrationPlan ShapesToCalibrate() const;

 private:
  const bool variable_length_;
  const bool mixes_lengths_;
  const std::int64_t largest_batch_;
  const std::vector<std::int64_t> buckets_;
  const std::vector<Tier> tiers_;
  const Padding padding_;
};

}  // namespace headroom
