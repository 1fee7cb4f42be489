// Loading, speed, and the loss of a device.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <thread>

#include "runtime/sample_batch.h"
#include "test/gpu/checks.h"

namespace headroom {
namespace {

constexpr std::uint64_t kSeed = 2;

// The middle of some runs' times in milliseconds.
absl::StatusOr<double> MedianMilliseconds(CheckRun& run, const CheckedModel& model, const BatchShape& shape, int runs) {
  const PaddedBatch batch = SampleBatch(*model.spec, shape, run.device(), kSeed);
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const RunResult result = run.device().Run(*model.loaded, batch);
    const auto* output = std::get_if<RunOutput>(&result);
    if (output == nullptr) return absl::InternalError(FailureOf(result));
    times.push_back(1e3 * Seconds(output->compute));
  }
  return Quantile(std::move(times), 0.5);
}

// A dry card does not compute, and so never finds a wrong id; test/gpu/check has told it to be lost after some kernels.
RunResult RunUntilLost(Device& device, const LoadedModel& model, const PaddedBatch& batch) {
  constexpr int kPatience = 10000;
  RunResult result = device.Run(model, batch);
  for (int i = 0; i < kPatience && std::holds_alternative<RunOutput>(result); ++i) result = device.Run(model, batch);
  return result;
}

// One row whose ids are all outside the vocabulary.
PaddedBatch BatchOutOfRange(const ModelSpec& spec, std::int64_t vocabulary, Device& device) {
  PaddedBatch batch = SampleBatch(spec, {1, spec.sequence.buckets.front()}, device, kSeed);
  HostTensor& ids = batch.inputs.front();
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    StoreElement(ids.type, static_cast<double>(2 * vocabulary), ids.data.get() + i * SizeOf(ids.type));
  }
  return batch;
}

}  // namespace

void CheckLoadOnce(CheckRun& run, Verdict& verdict) {
  constexpr int kAskers = 4;
  ModelRegistry registry;
  const ModelSpec spec = run.EncoderSpec();
  Device& device = run.device();
  const auto memory = [&] {
    const auto read = device.Memory();
    verdict.RequireOk(read.status(), "the device's memory");
    return read.value_or(DeviceMemory{});
  };
  const std::int64_t loads = device.loads();
  const DeviceMemory before = memory();
  std::vector<absl::StatusOr<std::shared_ptr<const LoadedModel>>> asked(kAskers, absl::UnknownError("not asked"));
  {
    std::vector<std::jthread> askers;
    for (auto& answer : asked) {
      askers.emplace_back([&] { answer = registry.Load(device, run.FileOf(spec.name), spec, 1); });
    }
  }
  const DeviceMemory loaded = memory();
  for (const auto& answer : asked) {
    if (!verdict.RequireOk(answer.status(), "load")) return;
    verdict.Require(*answer == *asked.front(), "two askers got two models");
  }
  verdict.Saw(absl::StrFormat("%d askers %d load", kAskers, device.loads() - loads));
  verdict.Require(device.loads() == loads + 1, "loaded more than once");
  verdict.Saw(absl::StrCat("weights ", ToString(loaded.allocated - before.allocated)));

  const auto second = registry.Load(device, run.FileOf(spec.name), spec, 1);
  const DeviceMemory after = memory();
  verdict.RequireOk(second.status(), "the second ask");
  verdict.Saw(absl::StrFormat("second ask %+d B", after.allocated.count - loaded.allocated.count));
  verdict.Require(after.allocated == loaded.allocated && after.held == loaded.held, "the second ask took memory");

  if (device.kind() == DeviceKind::kCuda && device.computes()) {
    const Bytes unseen = after.total - after.free - after.held;
    if (!run.options().memory_limit.has_value()) {
      verdict.Saw(absl::StrCat("outside the allocator, others included ", ToString(unseen)));
      PrintFact("unseen", unseen);
    }
  }
}

void CheckLatency(CheckRun& run, Verdict& verdict) {
  if (!verdict.RequireOk(run.Prepare(), "preparing")) return;
  const bool cpu = run.device().kind() == DeviceKind::kCpu;
  const int runs = cpu ? 3 : 9;
  std::int64_t shapes = 0;
  for (const auto& model : run.models()) {
    for (const CalibrationPlan::Length& length : model->ladder.ShapesToCalibrate().lengths) {
      std::vector<std::string> cells;
      std::vector<std::int64_t> rows = {1, 8, length.max_rows};
      std::sort(rows.begin(), rows.end());
      rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
      for (const std::int64_t some : rows) {
        if (some > length.max_rows || model->Needs({some, length.length}) > run.budget().idle_budget()) continue;
        const auto time = MedianMilliseconds(run, *model, {some, length.length}, runs);
        if (!verdict.RequireOk(time.status(), absl::StrCat(model->spec->name, " ", some, " x ", length.length))) return;
        cells.push_back(absl::StrFormat("%d rows %.2f ms", some, *time));
        ++shapes;
      }
      PrintInfo(absl::StrFormat("latency  %-9s length %3d: %s", model->spec->name, length.length, absl::StrJoin(cells, ", ")));
    }
  }
  verdict.Saw(absl::StrCat(shapes, " shapes, middle of ", runs, " runs each", run.device().computes() ? "" : " (dry: no times)"));
  verdict.Require(shapes > 0, "no shape fits");
}

void CheckDeviceLost(CheckRun& run, Verdict& verdict) {
  Device& device = run.device();
  const ModelSpec spec = run.EncoderSpec();
  ModelRegistry registry;
  const auto model = registry.Load(device, run.FileOf(spec.name), spec, 1);
  if (!verdict.RequireOk(model.status(), "load")) return;
  const PaddedBatch good = SampleBatch(spec, {1, spec.sequence.buckets.front()}, device, kSeed);
  const RunResult before = device.Run(**model, good);
  verdict.Require(std::holds_alternative<RunOutput>(before), absl::StrCat("a good batch fails: ", FailureOf(before)));

  const RunResult bad = device.computes() ? device.Run(**model, BatchOutOfRange(spec, run.options().vocabulary, device))
                                          : RunUntilLost(device, **model, good);
  const RunResult after = device.Run(**model, good);
  const auto memory = device.Memory();
  verdict.Saw(absl::StrCat(device.computes() ? "an id out of range: " : "told to be lost: ", FailureOf(bad)));
  if (device.kind() == DeviceKind::kCpu) {
    verdict.Require(std::holds_alternative<ModelError>(bad), "a wrong id is no error of the model");
    verdict.Require(std::holds_alternative<RunOutput>(after), "the CPU does not go on after it");
    verdict.Saw("the CPU goes on");
    return;
  }
  verdict.Require(std::holds_alternative<DeviceLost>(bad), "a device-side assert did not lose the device");
  verdict.Require(std::holds_alternative<DeviceLost>(after), absl::StrCat("the next run: ", FailureOf(after)));
  verdict.Require(!memory.ok(), "the device still tells its memory");
  verdict.Require(!run.budget().ReserveAvailable().ok(), "memory can still be reserved");
  verdict.Saw("the next run, Memory() and ReserveAvailable() say lost too");
}

}  // namespace headroom
