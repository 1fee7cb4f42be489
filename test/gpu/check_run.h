// What the checks of one process share: a device with its budget, and the models on it, loaded and calibrated once.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <vector>

#include "batching/served_model.h"
#include "memory/calibration.h"
#include "runtime/model_registry.h"
#include "test/gpu/check_options.h"

namespace headroom {

// A model as the server would have it before it serves it.
struct CheckedModel {
  std::shared_ptr<const ModelSpec> spec;
  std::shared_ptr<const LoadedModel> loaded;
  BucketLadder ladder;
  Calibration calibration;
  CalibratedEstimator estimator;         // of what the allocator takes from the device
  CalibratedEstimator tensor_estimator;  // of the bytes in tensors

  // What to reserve for a batch, margin included.
  Bytes Needs(const BatchShape& shape) const;
  // The most rows, up to the largest batch, that need at most `budget` at `length`; 0 where not even one does.
  std::int64_t RowsWithin(std::int64_t length, Bytes budget) const;
  ModelInstance InstanceOn(ServingDevice& device) const;
};

class CheckRun {
 public:
  // Everything that a run of the checks needs but the models. To be called once in a process.
  static absl::StatusOr<std::unique_ptr<CheckRun>> Open(const CheckOptions& options);

  const CheckOptions& options() const { return options_; }
  ServingDevice& serving() { return serving_; }
  Device& device() { return *serving_.device; }
  MemoryBudget& budget() { return *serving_.budget; }

  std::filesystem::path FileOf(const std::string& model) const { return options_.models / (model + ".pt"); }
  ModelSpec EncoderSpec() const;

  // Loads, warms and calibrates all models, the first time that it is called; a calibration that was kept in the models' folder
  // is read. Memory at rest is marked. `calibrated` says how.
  absl::Status Prepare();
  const std::string& calibrated() const { return calibrated_; }
  // After Prepare.
  const CheckedModel& encoder() const { return *models_[0]; }
  const CheckedModel& attention() const { return *models_[1]; }
  const CheckedModel& identity() const { return *models_[2]; }
  const std::vector<std::unique_ptr<CheckedModel>>& models() const { return models_; }
  // What the allocator may hold at most: the hard limit that the budget has set, on the CPU the limit of the process.
  absl::StatusOr<Bytes> HardLimit() const;
  // When nothing runs; what has been held at most since is forgotten.
  absl::Status MarkAtRest();
  const DeviceMemory& at_rest() const { return at_rest_; }

 private:
  explicit CheckRun(const CheckOptions& options) : options_(options) {}

  ModelSpec AttentionSpec() const;
  ModelSpec IdentitySpec() const;
  absl::Status Load(const ModelSpec& spec);
  absl::Status Warm(const CheckedModel& model);
  absl::Status CalibrateModel(CheckedModel& model);

  const CheckOptions options_;
  ServingDevice serving_;
  ModelRegistry registry_;
  std::vector<std::unique_ptr<CheckedModel>> models_;  // after the device: models go first
  bool prepared_ = false;
  std::string calibrated_;
  DeviceMemory at_rest_;
};

// One run of `shape` on the calling thread. The text of what went wrong, empty where nothing did.
std::string FailureOf(const RunResult& result);

}  // namespace headroom
