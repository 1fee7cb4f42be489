// A CUDA device as a Device.
#pragma once

#include <atomic>
#include <memory>

#include "runtime/torch/cuda_memory.h"
#include "runtime/torch/module_device.h"

namespace headroom {

struct TorchFailure;

class CudaDevice final : public ModuleDevice {
 public:
  static absl::StatusOr<std::unique_ptr<Device>> Make(int index, std::optional<Bytes> limit);

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  bool computes() const override { return !dry_; }
  std::string fingerprint() const override { return fingerprint_; }
  absl::StatusOr<DeviceMemory> Memory() const override;
  void ResetPeak() override { memory_.ResetPeak(); }
  void EmptyCache() override { memory_.EmptyCache(); }
  void LimitHeld(Bytes limit) override { memory_.LimitHeld(limit); }
  // Page-locked memory; ordinary memory where none is left.
  HostBuffer AllocateStaging(Bytes size) override;

 private:
  struct Properties;
  CudaDevice(int index, const Properties& properties, std::optional<Bytes> limit);

  absl::StatusOr<std::shared_ptr<const LoadedModel>> MakeHere(const MakeModule& make) override;
  // BF16 from compute capability 8.0 on, before that FP16: cards have instructions for no other.
  c10::ScalarType AutocastType() const override;
  RunResult RunModule(const TorchModule& module, const PaddedBatch& batch, std::optional<Bytes> probe_limit) override;
  absl::StatusOr<std::vector<HostTensor>> Compute(const TorchModule& module, const PaddedBatch& batch);
  // The copy is done when the current stream is.
  HostTensor StartCopyToHost(const at::Tensor& tensor);
  RunResult Explain(const TorchFailure& failure, std::optional<Bytes> refused);
  // The error that the device answers everything with once its context is poisoned; nothing while it is well. Waits for the calling
  // thread's stream. A device that is lost is asked nothing from then on.
  std::optional<std::string> FindLoss() const;

  const bool dry_;
  const std::string fingerprint_;
  CudaMemory memory_;
  mutable std::atomic<bool> lost_{false};
};

}  // namespace headroom
