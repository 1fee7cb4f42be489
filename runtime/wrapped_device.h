// A device that does what another does. For those that change one thing of it: they override that.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "runtime/device.h"

namespace headroom {

// As thread-safe as the device inside.
class WrappedDevice : public Device {
 public:
  explicit WrappedDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}

  const std::string& name() const override { return inner_->name(); }
  DeviceKind kind() const override { return inner_->kind(); }
  bool computes() const override { return inner_->computes(); }
  std::string fingerprint() const override { return inner_->fingerprint(); }
  absl::StatusOr<std::shared_ptr<const LoadedModel>> Load(const std::filesystem::path& file, const ModelSpec& spec) override {
    return inner_->Load(file, spec);
  }
  absl::StatusOr<std::shared_ptr<const LoadedModel>> Convert(const LoadedModel& model, Precision precision) override {
    return inner_->Convert(model, precision);
  }
  std::int64_t loads() const override { return inner_->loads(); }
  RunResult Run(const LoadedModel& model, const PaddedBatch& batch) override { return inner_->Run(model, batch); }
  RunResult Probe(const LoadedModel& model, const PaddedBatch& batch, Bytes limit) override {
    return inner_->Probe(model, batch, limit);
  }
  absl::StatusOr<DeviceMemory> Memory() const override { return inner_->Memory(); }
  void ResetPeak() override { inner_->ResetPeak(); }
  void EmptyCache() override { inner_->EmptyCache(); }
  void LimitHeld(Bytes limit) override { inner_->LimitHeld(limit); }
  HostBuffer AllocateStaging(Bytes size) override { return inner_->AllocateStaging(size); }

 private:
  const std::unique_ptr<Device> inner_;
};

}  // namespace headroom
