// A device without a library behind it: it has so much memory, a batch takes what a function says, outputs tell what ran.
#pragma once

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/sync.h"
#include "runtime/device.h"

namespace headroom {

// Thread-safe but for the hooks, which are set before the device is used.
//
// A run takes `peak(shape)` while it lasts and is out of memory where that does not fit beside the weights, other runs and a
// neighbour. Outputs, by their declared dims:
//   [4]   as the toy model P's: mask count, sum of the masked ids, padded length, rows of the batch
//   [-1]  for each token: its id + 0.5 where the mask is 1, else 0.5 (so that padding that is not cut away shows)
//   else  a copy of the first input
class FakeDevice final : public Device {
 public:
  using Failure = std::variant<OutOfMemory, ModelError, DeviceLost>;

  struct Options {
    std::string name = "cpu";
    DeviceKind kind = DeviceKind::kCpu;
    Bytes total = MiB(64);
    Bytes weights = MiB(1);  // what each loaded model takes
    std::function<Bytes(BatchShape)> peak = [](BatchShape shape) {
      return KiB(64) + KiB(shape.rows * std::max<std::int64_t>(1, shape.length));
    };
  };

  FakeDevice() : FakeDevice(Options{}) {}
  explicit FakeDevice(Options options) : options_(std::move(options)) {}

  // Called in each load, before it counts as done.
  std::function<absl::Status()> on_load = [] { return absl::OkStatus(); };
  // Called first in each run; a failure ends it.
  std::function<std::optional<Failure>(const PaddedBatch&)> fail_run = [](const PaddedBatch&) { return std::nullopt; };
  // Called in each run, while it holds its memory.
  std::function<void(const PaddedBatch&)> during_run = [](const PaddedBatch&) {};
  // Called in each run on what it returns.
  std::function<void(std::vector<HostTensor>&)> on_outputs = [](std::vector<HostTensor>&) {};

  // The `nth` run (from 1, probes not counted) ends so. A lost device stays lost.
  void FailRun(int nth, Failure failure) {
    MutexLock lock(mutex_);
    failures_.emplace(nth, std::move(failure));
  }
  // So many memory queries work from now on, no later one.
  void FailMemoryAfter(int queries) {
    MutexLock lock(mutex_);
    queries_left_ = queries;
  }
  // Another process takes so much of the device in all.
  void SetNeighbour(Bytes taken) {
    MutexLock lock(mutex_);
    neighbour_ = taken;
  }
  // So much of what is held lies split around live memory.
  void SetUnusable(Bytes unusable) {
    MutexLock lock(mutex_);
    unusable_ = unusable;
  }
  // The allocator keeps so much beyond what is in use until EmptyCache.
  void SetCached(Bytes cached) {
    MutexLock lock(mutex_);
    cached_ = cached;
  }

  const std::string& name() const override { return options_.name; }
  DeviceKind kind() const override { return options_.kind; }
  bool computes() const override { return true; }
  std::string fingerprint() const override { return "fake device"; }

  absl::StatusOr<std::shared_ptr<const LoadedModel>> Load(const std::filesystem::path&, const ModelSpec& spec) override {
    {
      MutexLock lock(mutex_);
      ++loads_;
    }
    if (absl::Status status = on_load(); !status.ok()) return status;
    return std::make_shared<FakeModel>(*this, spec);
  }
  std::int64_t loads() const override {
    MutexLock lock(mutex_);
    return loads_;
  }

  RunResult Run(const LoadedModel& model, const PaddedBatch& batch) override {
    if (auto failure = NextFailure()) {
      return std::visit([](auto&& f) { return RunResult(std::move(f)); }, std::move(*failure));
    }
    if (auto failure = fail_run(batch)) {
      return std::visit([](auto&& f) { return RunResult(std::move(f)); }, std::move(*failure));
    }
    const Bytes peak = options_.peak(batch.shape);
    if (!Take(peak)) return OutOfMemory{peak};
    during_run(batch);
    RunOutput output{Echo(static_cast<const FakeModel&>(model).spec, batch), peak, ComputeTime(batch.shape)};
    GiveBack(peak);
    on_outputs(output.outputs);
    return output;
  }

  RunResult Probe(const LoadedModel& model, const PaddedBatch& batch, Bytes limit) override {
    const Bytes peak = options_.peak(batch.shape);
    if (peak > limit) return OutOfMemory{peak};
    return RunOutput{Echo(static_cast<const FakeModel&>(model).spec, batch), peak, ComputeTime(batch.shape)};
  }

  absl::StatusOr<DeviceMemory> Memory() const override {
    MutexLock lock(mutex_);
    if (queries_left_ && (*queries_left_)-- <= 0) return absl::InternalError("the device does not answer");
    const Bytes held = in_use_ + cached_;
    return DeviceMemory{.total = options_.total,
                        .free = options_.total - neighbour_ - held,
                        .held = held,
                        .allocated = in_use_,
                        .unusable = unusable_,
                        .peak_held = peak_held_};
  }
  void ResetPeak() override {
    MutexLock lock(mutex_);
    peak_held_ = in_use_;
  }
  void EmptyCache() override {
    MutexLock lock(mutex_);
    cached_ = {0};
    ++caches_emptied_;
  }
  void LimitHeld(Bytes limit) override {
    MutexLock lock(mutex_);
    limit_ = limit;
  }
  HostBuffer AllocateStaging(Bytes size) override { return AllocateHost(size); }

  int runs() const {
    MutexLock lock(mutex_);
    return runs_;
  }
  int caches_emptied() const {
    MutexLock lock(mutex_);
    return caches_emptied_;
  }
  Bytes limit() const {
    MutexLock lock(mutex_);
    return limit_;
  }
  Bytes in_use() const {
    MutexLock lock(mutex_);
    return in_use_;
  }

 private:
  struct FakeModel final : LoadedModel {
    FakeModel(FakeDevice& on, ModelSpec of) : device(on), spec(std::move(of)) { device.Add(device.options_.weights); }
    ~FakeModel() override { device.GiveBack(device.options_.weights); }
    FakeModel(const FakeModel&) = delete;
    FakeModel& operator=(const FakeModel&) = delete;

    FakeDevice& device;
    const ModelSpec spec;
  };

  static Duration ComputeTime(const BatchShape& shape) { return std::chrono::microseconds(100 * shape.rows); }

  std::optional<Failure> NextFailure() {
    MutexLock lock(mutex_);
    const auto found = failures_.find(++runs_);
    if (found != failures_.end()) {
      if (std::holds_alternative<DeviceLost>(found->second)) lost_ = true;
      return found->second;
    }
    if (lost_) return DeviceLost{"the device was lost before"};
    return std::nullopt;
  }

  void Add(Bytes bytes) {
    MutexLock lock(mutex_);
    in_use_ += bytes;
    peak_held_ = std::max(peak_held_, in_use_);
  }
  bool Take(Bytes bytes) {
    MutexLock lock(mutex_);
    if (in_use_ + bytes > std::min(limit_, options_.total - neighbour_)) return false;
    in_use_ += bytes;
    peak_held_ = std::max(peak_held_, in_use_);
    return true;
  }
  void GiveBack(Bytes bytes) {
    MutexLock lock(mutex_);
    in_use_ -= bytes;
  }

  static HostTensor OutputFor(const ModelSpec& spec, const OutputSpec& output, const BatchShape& shape) {
    HostTensor tensor;
    tensor.type = output.type;
    if (spec.has_batch_dimension()) tensor.shape.push_back(shape.rows);
    for (const std::int64_t dim : output.dims) tensor.shape.push_back(dim == kSequenceAxis ? shape.length : dim);
    tensor.data = AllocateHost(tensor.size());
    return tensor;
  }

  static double At(const HostTensor& tensor, std::int64_t index) {
    return LoadElement(tensor.type, tensor.data.get() + index * SizeOf(tensor.type));
  }

  static std::vector<HostTensor> Echo(const ModelSpec& spec, const PaddedBatch& batch) {
    std::vector<HostTensor> outputs;
    for (const OutputSpec& output : spec.outputs) {
      HostTensor tensor = OutputFor(spec, output, batch.shape);
      if (output.dims == std::vector<std::int64_t>{4}) {
        TellRows(spec, batch, tensor);
      } else if (output.dims == std::vector<std::int64_t>{kSequenceAxis}) {
        TellTokens(spec, batch, tensor);
      } else {
        std::copy_n(batch.inputs[0].data.get(), std::min(tensor.size(), batch.inputs[0].size()).count, tensor.data.get());
      }
      outputs.push_back(std::move(tensor));
    }
    return outputs;
  }

  // The id at `index` of the first input, and whether the mask keeps it.
  static std::pair<double, bool> Token(const ModelSpec& spec, const PaddedBatch& batch, std::int64_t index) {
    const int mask = spec.mask_index();
    return {At(batch.inputs[0], index), mask < 0 || At(batch.inputs[static_cast<std::size_t>(mask)], index) != 0};
  }

  static void TellRows(const ModelSpec& spec, const PaddedBatch& batch, HostTensor& to) {
    const BatchShape& shape = batch.shape;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      double count = 0;
      double sum = 0;
      for (std::int64_t i = 0; i < shape.length; ++i) {
        const auto [id, kept] = Token(spec, batch, row * shape.length + i);
        count += kept ? 1 : 0;
        sum += kept ? id : 0;
      }
      const double told[] = {count, sum, static_cast<double>(shape.length), static_cast<double>(shape.rows)};
      for (std::int64_t i = 0; i < 4; ++i) {
        StoreElement(to.type, told[i], to.data.get() + (row * 4 + i) * SizeOf(to.type));
      }
    }
  }

  static void TellTokens(const ModelSpec& spec, const PaddedBatch& batch, HostTensor& to) {
    for (std::int64_t i = 0; i < to.elements(); ++i) {
      const auto [id, kept] = Token(spec, batch, i);
      StoreElement(to.type, (kept ? id : 0) + 0.5, to.data.get() + i * SizeOf(to.type));
    }
  }

  const Options options_;

  mutable Mutex mutex_;
  std::map<int, Failure> failures_ GUARDED_BY(mutex_);
  bool lost_ GUARDED_BY(mutex_) = false;
  mutable std::optional<int> queries_left_ GUARDED_BY(mutex_);
  std::int64_t loads_ GUARDED_BY(mutex_) = 0;
  int runs_ GUARDED_BY(mutex_) = 0;
  int caches_emptied_ GUARDED_BY(mutex_) = 0;
  Bytes neighbour_ GUARDED_BY(mutex_){0};
  Bytes unusable_ GUARDED_BY(mutex_){0};
  Bytes cached_ GUARDED_BY(mutex_){0};
  Bytes in_use_ GUARDED_BY(mutex_){0};
  Bytes peak_held_ GUARDED_BY(mutex_){0};
  Bytes limit_ GUARDED_BY(mutex_){std::numeric_limits<std::int64_t>::max()};
};

}  // namespace headroom
