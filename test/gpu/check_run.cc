#include "test/gpu/check_run.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "memory/calibration_file.h"
#include "runtime/sample_batch.h"
#include "runtime/torch/torch_device.h"

namespace headroom {
namespace {

constexpr double kFraction = 0.8;
constexpr Bytes kCpuMemory = GiB(4);
constexpr std::uint64_t kSampleSeed = 1;
constexpr std::int64_t kVersion = 1;

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const CheckOptions& options) {
  if (options.device == "cpu") return MakeCpuDevice(options.memory_limit.value_or(kCpuMemory));
  int index = 0;
  if (!absl::SimpleAtoi(options.device.substr(5), &index)) {
    return absl::InvalidArgumentError(absl::StrCat("no such device: ", options.device));
  }
  return MakeCudaDevice(index, options.memory_limit);
}

// A model that reads ids and a mask.
ModelSpec TextSpec(const CheckOptions& options, std::string name, OutputSpec output, Padding padding) {
  ModelSpec spec;
  spec.name = std::move(name);
  spec.max_batch_rows = options.max_rows;
  InputSpec& ids = spec.inputs.emplace_back();
  ids.name = "input_ids";
  ids.type = DataType::kInt64;
  ids.dims = {kSequenceAxis};
  ids.role = InputRole::kTokens;
  ids.value_range = ValueRange{0, static_cast<double>(options.vocabulary - 1)};
  InputSpec& mask = spec.inputs.emplace_back();
  mask.name = "attention_mask";
  mask.type = DataType::kInt64;
  mask.dims = {kSequenceAxis};
  mask.role = InputRole::kMask;
  mask.optional = true;
  spec.outputs = {std::move(output)};
  std::erase_if(spec.sequence.buckets, [&](std::int64_t bucket) { return bucket > options.longest; });
  spec.sequence.padding = padding;
  spec.queue.max_rows = 1 << 20;
  return spec;
}

}  // namespace

Bytes CheckedModel::Needs(const BatchShape& shape) const {
  return Scale(estimator.Peak(shape).value_or(GiB(1 << 20)), 1 + spec->safety_margin);
}

std::int64_t CheckedModel::RowsWithin(std::int64_t length, Bytes budget) const {
  std::int64_t rows = spec->largest_batch();
  while (rows > 0 && Needs({rows, length}) > budget) --rows;
  return rows;
}

ModelInstance CheckedModel::InstanceOn(ServingDevice& device) const {
  return {&device, loaded, ladder, estimator, tensor_estimator, spec->safety_margin};
}

std::string FailureOf(const RunResult& result) {
  if (const auto* full = std::get_if<OutOfMemory>(&result)) return absl::StrCat("out of memory at ", ToString(full->at_least));
  if (const auto* error = std::get_if<ModelError>(&result)) return absl::StrCat("the model failed: ", error->text);
  if (const auto* lost = std::get_if<DeviceLost>(&result)) return absl::StrCat("the device was lost: ", lost->text);
  return "";
}

absl::StatusOr<std::unique_ptr<CheckRun>> CheckRun::Open(const CheckOptions& options) {
  RETURN_IF_ERROR(InitializeTorch({.intra_op_threads = 1}));
  std::unique_ptr<CheckRun> run(new CheckRun(options));
  ASSIGN_OR_RETURN(run->serving_.device, MakeDevice(options));
  run->serving_.budget = std::make_unique<MemoryBudget>(*run->serving_.device, kFraction);
  RETURN_IF_ERROR(run->MarkAtRest());
  return run;
}

ModelSpec CheckRun::EncoderSpec() const {
  // To buckets on every device, as a GPU has it.
  return TextSpec(options_, "encoder", {.name = "embedding", .type = DataType::kFp32, .dims = {options_.width}}, Padding::kBucket);
}

ModelSpec CheckRun::AttentionSpec() const {
  // 64 is models.py's ATTENTION_WIDTH. Padded as a model is that says nothing: on the CPU to lengths inside buckets too.
  return TextSpec(options_, "attention", {.name = "mean", .type = DataType::kFp32, .dims = {64}}, Padding::kAuto);
}

ModelSpec CheckRun::IdentitySpec() const {
  ModelSpec spec;
  spec.name = "identity";
  spec.max_batch_rows = options_.max_rows;
  InputSpec& x = spec.inputs.emplace_back();
  x.name = "x";
  x.dims = {16};
  spec.outputs = {{.name = "y", .type = DataType::kFp32, .dims = {16}}};
  return spec;
}

absl::Status CheckRun::Prepare() {
  if (prepared_) return absl::OkStatus();
  models_.clear();
  for (const ModelSpec& spec : {EncoderSpec(), AttentionSpec(), IdentitySpec()}) {
    RETURN_IF_ERROR(Load(spec));
    RETURN_IF_ERROR(Warm(*models_.back()));
  }
  RETURN_IF_ERROR(MarkAtRest());
  for (const auto& model : models_) RETURN_IF_ERROR(CalibrateModel(*model));
  RETURN_IF_ERROR(MarkAtRest());
  prepared_ = true;
  return absl::OkStatus();
}

absl::Status CheckRun::Load(const ModelSpec& spec) {
  const BucketLadder ladder(spec, device().kind());
  ASSIGN_OR_RETURN(auto loaded, registry_.Load(device(), FileOf(spec.name), spec, kVersion));
  models_.push_back(std::make_unique<CheckedModel>(CheckedModel{std::make_shared<const ModelSpec>(spec),
                                                                std::move(loaded),
                                                                ladder,
                                                                {},
                                                                CalibratedEstimator({LengthCurve{}}),
                                                                CalibratedEstimator({LengthCurve{}})}));
  return absl::OkStatus();
}

absl::Status CheckRun::Warm(const CheckedModel& model) {
  for (const CalibrationPlan::Length& length : model.ladder.ShapesToCalibrate().lengths) {
    for (const std::int64_t rows : {1, 1, 2, 2}) {
      const RunResult result = device().Run(*model.loaded, SampleBatch(*model.spec, {rows, length.length}, device(), kSampleSeed));
      if (const std::string failure = FailureOf(result); !failure.empty()) {
        return absl::InternalError(
            absl::StrCat(model.spec->name, " fails in warm-up at ", rows, " x ", length.length, ": ", failure));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRun::CalibrateModel(CheckedModel& model) {
  ASSIGN_OR_RETURN(const BudgetSnapshot memory, budget().Snapshot());
  const std::string key = absl::StrCat(model.spec->name, " on=", device().fingerprint());
  const std::filesystem::path file = options_.models / absl::StrCat(model.spec->name, ".calibration.txt");
  auto kept = KeptCalibration(file, key);
  if (kept.ok() && IsEnough(*kept, memory.budget)) {
    model.calibration = *std::move(kept);
    absl::StrAppend(&calibrated_, calibrated_.empty() ? "" : ", ", model.spec->name, " as kept");
  } else {
    const TimePoint start = RealClock().Now();
    int probes = 0;
    const auto probe = [&](BatchShape shape) {
      ++probes;
      return device().Probe(*model.loaded, SampleBatch(*model.spec, shape, device(), kSampleSeed), memory.budget);
    };
    ASSIGN_OR_RETURN(model.calibration, Calibrate(model.ladder.ShapesToCalibrate(), memory.budget, probe,
                                                  [](std::size_t, std::size_t, std::int64_t) {}, {}));
    RETURN_IF_ERROR(KeepCalibration(file, key, model.calibration));
    absl::StrAppend(&calibrated_, calibrated_.empty() ? "" : ", ",
                    absl::StrFormat("%s %d probes %.2f s", model.spec->name, probes, Seconds(RealClock().Now() - start)));
  }
  model.estimator = CalibratedEstimator(model.calibration.curves, CalibratedEstimator::RoundingOn(device().kind()));
  model.tensor_estimator = CalibratedEstimator(TensorCurves(model.calibration));
  return absl::OkStatus();
}

absl::StatusOr<Bytes> CheckRun::HardLimit() const {
  ASSIGN_OR_RETURN(const DeviceMemory memory, serving_.device->Memory());
  if (serving_.device->kind() == DeviceKind::kCpu) return memory.total;
  ASSIGN_OR_RETURN(const BudgetSnapshot budget, serving_.budget->Snapshot());
  return std::min(memory.total, at_rest_.held + budget.budget);
}

absl::Status CheckRun::MarkAtRest() {
  RETURN_IF_ERROR(budget().MarkAtRest());
  ASSIGN_OR_RETURN(at_rest_, device().Memory());
  return absl::OkStatus();
}

}  // namespace headroom
