// What the CPU and CUDA devices have in common: loading, counting loads, and the way of a batch through a module.
#pragma once

#include <absl/status/statusor.h>
#include <c10/core/Device.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/device.h"
#include "runtime/torch/torch_module.h"

namespace headroom {

class ModuleDevice : public Device {
 public:
  const std::string& name() const final { return name_; }
  std::int64_t loads() const final { return loads_.load(); }

  absl::StatusOr<std::shared_ptr<const LoadedModel>> Load(const std::filesystem::path& file, const ModelSpec& spec) final;
  absl::StatusOr<std::shared_ptr<const LoadedModel>> Convert(const LoadedModel& model, Precision precision) final;
  RunResult Run(const LoadedModel& model, const PaddedBatch& batch) final { return CheckAndRun(model, batch, std::nullopt); }
  RunResult Probe(const LoadedModel& model, const PaddedBatch& batch, Bytes limit) final {
    return CheckAndRun(model, batch, limit);
  }

 protected:
  explicit ModuleDevice(c10::Device device) : device_(device), name_(device.str()) {}

  c10::Device device() const { return device_; }

  // Makes a module: Load and Convert, but for what a device does around them.
  using MakeModule = std::function<absl::StatusOr<std::shared_ptr<const TorchModule>>()>;
  // Calls `make` on this device, and explains where it had no memory.
  virtual absl::StatusOr<std::shared_ptr<const LoadedModel>> MakeHere(const MakeModule& make) = 0;
  // What autocast computes in.
  virtual c10::ScalarType AutocastType() const = 0;

  // What Load and Convert answer where an allocation was refused, of which `wanted` is what it would have taken to go on.
  absl::Status DoesNotFit(std::optional<Bytes> wanted) const;

  // Run (no `probe_limit`) or Probe. `module` is on this device, `batch` has an input for each of its own.
  virtual RunResult RunModule(const TorchModule& module, const PaddedBatch& batch, std::optional<Bytes> probe_limit) = 0;

 private:
  absl::StatusOr<std::shared_ptr<const TorchModule>> LoadModule(const std::filesystem::path& file, const ModelSpec& spec);
  RunResult CheckAndRun(const LoadedModel& model, const PaddedBatch& batch, std::optional<Bytes> probe_limit);

  const c10::Device device_;
  const std::string name_;
  std::atomic<std::int64_t> loads_{0};
};

// Settings that libtorch keeps for each thread and that a run relies on; cheap after a thread's first call.
void PrepareThread();

}  // namespace headroom
