#include "test/faulty/faulty_device.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <utility>

#include "base/clock.h"
#include "base/sync.h"

namespace headroom {
namespace {

// Sleeps through the clock: waits for what nobody notifies.
void Pause(Duration duration) {
  Mutex mutex;
  CondVar never;
  const TimePoint until = RealClock().Now() + duration;
  MutexLock lock(mutex);
  while (RealClock().Now() < until) RealClock().WaitUntil(mutex, never, until);
}

bool Holds(const PaddedBatch& batch, std::int64_t id) {
  // The tokens come first in every toy model.
  const HostTensor& tokens = batch.inputs.front();
  const std::int64_t width = SizeOf(tokens.type);
  for (std::int64_t i = 0; i < tokens.elements(); ++i) {
    if (LoadElement(tokens.type, tokens.data.get() + i * width) == static_cast<double>(id)) return true;
  }
  return false;
}

class FaultyDevice final : public Device {
 public:
  FaultyDevice(std::unique_ptr<Device> device, const Faults& faults) : device_(std::move(device)), faults_(faults) {}

  RunResult Run(const LoadedModel& model, const PaddedBatch& batch) override {
    if (!faults_.armed()) return device_->Run(model, batch);
    if (faults_.device_lost_after() >= 0 && runs_++ >= faults_.device_lost_after()) return DeviceLost{"an injected fault"};
    const TimePoint started = RealClock().Now();
    if (faults_.delay_ms() > 0) Pause(std::chrono::milliseconds(faults_.delay_ms()));
    if (faults_.oom_over_rows() > 0 && batch.shape.rows > faults_.oom_over_rows()) return OutOfMemory{};
    if (faults_.throw_on_id() >= 0 && Holds(batch, faults_.throw_on_id())) return ModelError{"an injected fault"};
    RunResult result = device_->Run(model, batch);
    if (auto* output = std::get_if<RunOutput>(&result)) output->compute = RealClock().Now() - started;
    return result;
  }

  const std::string& name() const override { return device_->name(); }
  DeviceKind kind() const override { return device_->kind(); }
  bool computes() const override { return device_->computes(); }
  std::string fingerprint() const override { return device_->fingerprint(); }
  absl::StatusOr<std::shared_ptr<const LoadedModel>> Load(const std::filesystem::path& file, const ModelSpec& spec) override {
    return device_->Load(file, spec);
  }
  std::int64_t loads() const override { return device_->loads(); }
  RunResult Probe(const LoadedModel& model, const PaddedBatch& batch, Bytes limit) override {
    return device_->Probe(model, batch, limit);
  }
  absl::StatusOr<DeviceMemory> Memory() const override {
    const std::int64_t after = faults_.memory_query_fails_after();
    if (faults_.armed() && after >= 0 && queries_++ >= after)
      return absl::InternalError("an injected fault: memory cannot be read");
    return device_->Memory();
  }
  void ResetPeak() override { device_->ResetPeak(); }
  void EmptyCache() override { device_->EmptyCache(); }
  void LimitHeld(Bytes limit) override { device_->LimitHeld(limit); }
  HostBuffer AllocateStaging(Bytes size) override { return device_->AllocateStaging(size); }

 private:
  const std::unique_ptr<Device> device_;
  const Faults& faults_;
  std::atomic<std::int64_t> runs_ = 0;
  mutable std::atomic<std::int64_t> queries_ = 0;
};

}  // namespace

absl::Status Faults::Read(const std::string& text) {
  for (const auto& [name, setting] : {std::pair<const char*, std::int64_t*>{"delay_ms", &delay_ms_},
                                      {"throw_on_id", &throw_on_id_},
                                      {"oom_over_rows", &oom_over_rows_},
                                      {"oom_at_allocation", &oom_at_allocation_},
                                      {"device_lost_after", &device_lost_after_},
                                      {"memory_query_fails_after", &memory_query_fails_after_}}) {
    const std::string prefix = absl::StrCat(name, "=");
    if (!text.starts_with(prefix)) continue;
    if (absl::SimpleAtoi(text.substr(prefix.size()), setting) && *setting >= 0) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no fault with a whole number; there are ", kFaultNames));
}

std::unique_ptr<Device> MakeFaultyDevice(std::unique_ptr<Device> device, const Faults& faults) {
  return std::make_unique<FaultyDevice>(std::move(device), faults);
}

}  // namespace headroom
