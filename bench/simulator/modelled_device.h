// A device that is not there: how long a batch would run on it and what memory it would take, from a calibration or a formula.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "batching/latency_model.h"
#include "memory/memory_estimator.h"
#include "runtime/device.h"

namespace headroom {

// Constant after construction; thread-safe.
class ModelledDevice {
 public:
  // A batch runs fixed + per_token × rows × length, and takes bytes_per_token × rows × length.
  struct Formula {
    Duration fixed{0};
    Duration per_token{0};
    Bytes bytes_per_token{0};
  };
  // Lengths from 1 to `longest`, rows from 1 to `most_rows`.
  static ModelledDevice Of(const Formula& formula, std::int64_t longest, std::int64_t most_rows);

  // What one device of one model was measured to do. `json` is the output of `headroom plan --json`; `model` may be empty where it
  // tells of only one. The first device is taken. INVALID_ARGUMENT where it tells of none, or of one that does not compute.
  static absl::StatusOr<ModelledDevice> FromPlan(const std::string& json, const std::string& model);

  Duration Takes(BatchShape shape) const { return latency_.Of(shape); }
  // What is to be reserved for a batch, `margin` included.
  const MemoryEstimator& memory() const { return *memory_; }
  const CalibratedLatency& latency() const { return latency_; }

  // As the plan says; of a formula all are empty.
  const std::vector<std::int64_t>& buckets() const { return buckets_; }
  Bytes budget() const { return budget_; }
  DeviceKind kind() const { return kind_; }

 private:
  ModelledDevice(CalibratedLatency latency, std::shared_ptr<const MemoryEstimator> memory)
      : latency_(std::move(latency)), memory_(std::move(memory)) {}

  CalibratedLatency latency_;
  std::shared_ptr<const MemoryEstimator> memory_;
  std::vector<std::int64_t> buckets_;
  Bytes budget_{0};
  DeviceKind kind_ = DeviceKind::kCpu;
};

}  // namespace headroom
