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
  absl::StatusOr<std::shared_ptr<const LoadedModel>> Load(const std::filesystem::path& file, const ModelSpec& spec) override;
  absl::StatusOr<DeviceMemory> Memory() const override;
  void ResetPeak() override;
  // Kept blocks are counted as free: they make room for whatever is new at once.
  void EmptyCache() override { ReleaseKeptCpuMemory(); }
  // The allocator enforces Memory().total; this bounds what is kept.
  void LimitHeld(Bytes limit) override { LimitCpuHeld(limit); }
  HostBuffer AllocateStaging(Bytes size) override { return AllocateHost(size); }

 private:
  RunResult RunModule(const TorchModule& module, const PaddedBatch& batch, std::optional<Bytes> probe_limit) override;
};

}  // namespace headroom
