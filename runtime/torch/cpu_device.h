// The CPU as a Device: its memory is the counting allocator's.
#pragma once

#include "runtime/torch/cpu_memory.h"
#include "runtime/torch/module_device.h"

namespace headroom {

class CpuDevice final : public ModuleDevice {
 public:
  CpuDevice();

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  bool computes() const override { return true; }
  std::string fingerprint() const override;
  absl::StatusOr<DeviceMemory> Memory() const override;
  void ResetPeak() override;
  // Kept blocks are counted as free: they make room for whatever is new at once.
  void EmptyCache() override { ReleaseKeptCpuMemory(); }
  // The allocator enforces Memory().total; this bounds what is kept.
  void LimitHeld(Bytes limit) override { LimitCpuHeld(limit); }
  HostBuffer AllocateStaging(Bytes size) override { return AllocateHost(size); }

 private:
  absl::StatusOr<std::shared_ptr<const LoadedModel>> MakeHere(const MakeModule& make) override;
  // The half that processors have instructions for.
  c10::ScalarType AutocastType() const override { return c10::ScalarType::BFloat16; }
  RunResult RunModule(const TorchModule& module, const PaddedBatch& batch, std::optional<Bytes> probe_limit) override;
};

}  // namespace headroom
