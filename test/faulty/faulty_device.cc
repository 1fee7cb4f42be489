#include "test/faulty/faulty_device.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "runtime/wrapped_device.h"

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

class FaultyDevice final : public WrappedDevice {
 public:
  FaultyDevice(std::unique_ptr<Device> device, const Faults& faults) : WrappedDevice(std::move(device)), faults_(faults) {}

  RunResult Run(const LoadedModel& model, const PaddedBatch& batch) override {
    if (!faults_.armed()) return WrappedDevice::Run(model, batch);
    const std::int64_t run = ++runs_;
    if (faults_.device_lost_after() >= 0 && run > faults_.device_lost_after()) return DeviceLost{"an injected fault"};
    while (run == faults_.hang_after()) Pause(std::chrono::hours(1));
    if (faults_.leak_bytes() > 0) Leak(faults_.leak_bytes());
    const TimePoint started = RealClock().Now();
    if (faults_.delay_ms() > 0) Pause(std::chrono::milliseconds(faults_.delay_ms()));
    if (faults_.oom_over_rows() > 0 && batch.shape.rows > faults_.oom_over_rows()) return OutOfMemory{};
    if (faults_.oom_every() > 0 && run % faults_.oom_every() == 0) return OutOfMemory{};
    if (faults_.throw_every() > 0 && run % faults_.throw_every() == 0) return ModelError{"an injected fault"};
    if (faults_.throw_on_id() >= 0 && Holds(batch, faults_.throw_on_id())) return ModelError{"an injected fault"};
    RunResult result = WrappedDevice::Run(model, batch);
    if (auto* output = std::get_if<RunOutput>(&result)) output->compute = RealClock().Now() - started;
    return result;
  }

  std::string fingerprint() const override {
    // What is measured wrongly must not be kept for others.
    const std::string wrong =
        faults_.estimate_percent() == 100 ? "" : absl::StrCat(", measured at ", faults_.estimate_percent(), " %");
    return WrappedDevice::fingerprint() + wrong;
  }
  RunResult Probe(const LoadedModel& model, const PaddedBatch& batch, Bytes limit) override {
    RunResult result = WrappedDevice::Probe(model, batch, limit);
    auto* const output = std::get_if<RunOutput>(&result);
    if (output != nullptr && output->peak)
      output->peak = Scale(*output->peak, static_cast<double>(faults_.estimate_percent()) / 100);
    return result;
  }
  absl::StatusOr<DeviceMemory> Memory() const override {
    if (faults_.device_lost_after() >= 0 && runs_ > faults_.device_lost_after()) return absl::InternalError("the device was lost");
    const std::int64_t after = faults_.memory_query_fails_after();
    if (faults_.armed() && after >= 0 && queries_++ >= after)
      return absl::InternalError("an injected fault: memory cannot be read");
    auto memory = WrappedDevice::Memory();
    if (const auto free = faults_.free_bytes(); free && memory.ok()) memory->free = std::min(memory->free, *free);
    return memory;
  }

 private:
  // Touches `bytes` more of blocks that grow in number for ever: exactly so many, where malloc would add its own. They stay
  // reachable, so that no leak checker takes them for a fault of the program.
  void Leak(std::int64_t bytes) EXCLUDES(leaking_) {
    MutexLock lock(leaking_);
    for (std::int64_t left = bytes; left > 0;) {
      if (used_ == kLeakBlock) {
        leaked_.emplace_back(new char[kLeakBlock]);
        used_ = 0;
      }
      const std::int64_t piece = std::min(left, kLeakBlock - used_);
      std::memset(leaked_.back().get() + used_, 1, static_cast<std::size_t>(piece));
      used_ += piece;
      left -= piece;
    }
  }

  const Faults& faults_;
  std::atomic<std::int64_t> runs_ = 0;  // since Arm()
  mutable std::atomic<std::int64_t> queries_ = 0;

  static constexpr std::int64_t kLeakBlock = 64 << 10;
  Mutex leaking_;
  std::vector<std::unique_ptr<char[]>> leaked_ GUARDED_BY(leaking_);
  std::int64_t used_ GUARDED_BY(leaking_) = kLeakBlock;  // of the last block
};

}  // namespace

void Faults::Arm() {
  armed_at_ = RealClock().Now();
  armed_ = true;
}

std::optional<Bytes> Faults::free_bytes() const {
  if (free_bytes_.empty()) return std::nullopt;
  if (!armed_) return free_bytes_.front().bytes;
  const Duration since = RealClock().Now() - armed_at_;
  const auto next =
      std::find_if(free_bytes_.begin(), free_bytes_.end(), [&](const FreeFrom& from) { return from.after_arming > since; });
  return std::prev(next)->bytes;
}

absl::Status Faults::ReadFreeBytes(const std::string& text) {
  for (const absl::string_view entry : absl::StrSplit(text, ',')) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(entry, absl::MaxSplits('@', 1));
    std::int64_t bytes = 0;
    std::int64_t ms = 0;
    const bool first = free_bytes_.empty();
    if (!absl::SimpleAtoi(parts.first, &bytes) || (first ? !parts.second.empty() : !absl::SimpleAtoi(parts.second, &ms))) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", entry, "': free_bytes is a number of bytes, later ones with @milliseconds"));
    }
    free_bytes_.push_back({std::chrono::milliseconds(ms), {bytes}});
  }
  return absl::OkStatus();
}

absl::Status Faults::Read(const std::string& text) {
  if (text.starts_with("free_bytes=")) return ReadFreeBytes(text.substr(text.find('=') + 1));
  for (const auto& [name, setting] : {std::pair<const char*, std::int64_t*>{"delay_ms", &delay_ms_},
                                      {"throw_on_id", &throw_on_id_},
                                      {"throw_every", &throw_every_},
                                      {"oom_over_rows", &oom_over_rows_},
                                      {"oom_every", &oom_every_},
                                      {"estimate_percent", &estimate_percent_},
                                      {"oom_at_allocation", &oom_at_allocation_},
                                      {"device_lost_after", &device_lost_after_},
                                      {"leak_bytes", &leak_bytes_},
                                      {"hang_after", &hang_after_},
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
