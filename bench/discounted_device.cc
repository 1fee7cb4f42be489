#include "bench/discounted_device.h"

#include <utility>

#include "base/status_macros.h"

namespace headroom {
namespace {

class DiscountedDevice final : public Device {
 public:
  DiscountedDevice(std::unique_ptr<Device> device, double discount) : device_(std::move(device)), discount_(discount) {}

  const std::string& name() const override { return device_->name(); }
  DeviceKind kind() const override { return device_->kind(); }
  bool computes() const override { return device_->computes(); }
  std::string fingerprint() const override { return device_->fingerprint(); }
  absl::StatusOr<std::shared_ptr<const LoadedModel>> Load(const std::filesystem::path& file, const ModelSpec& spec) override {
    return device_->Load(file, spec);
  }
  std::int64_t loads() const override { return device_->loads(); }
  RunResult Run(const LoadedModel& model, const PaddedBatch& batch) override { return device_->Run(model, batch); }
  RunResult Probe(const LoadedModel& model, const PaddedBatch& batch, Bytes limit) override {
    return device_->Probe(model, batch, limit);
  }
  absl::StatusOr<DeviceMemory> Memory() const override {
    ASSIGN_OR_RETURN(DeviceMemory memory, device_->Memory());
    memory.unusable = {static_cast<std::int64_t>(discount_ * static_cast<double>(memory.unusable.count))};
    return memory;
  }
  void ResetPeak() override { device_->ResetPeak(); }
  void EmptyCache() override { device_->EmptyCache(); }
  void LimitHeld(Bytes limit) override { device_->LimitHeld(limit); }
  HostBuffer AllocateStaging(Bytes size) override { return device_->AllocateStaging(size); }

 private:
  const std::unique_ptr<Device> device_;
  const double discount_;
};

}  // namespace

std::unique_ptr<Device> MakeDiscountedDevice(std::unique_ptr<Device> device, double discount) {
  return std::make_unique<DiscountedDevice>(std::move(device), discount);
}

}  // namespace headroom
