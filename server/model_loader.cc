#include "server/model_loader.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "base/status_macros.h"
#include "batching/padding_check.h"
#include "memory/calibration_file.h"
#include "runtime/output_check.h"
#include "runtime/precision_choice.h"
#include "runtime/sample_batch.h"
#include "server/host_memory.h"

namespace headroom {
namespace {

constexpr std::uint64_t kSampleSeed = 1;
// The first run of a shape also pays for what a library sets up once; the second is as all later ones.
constexpr int kWarmUpRuns = 2;

absl::Status Named(const RepositoryModel& model, const absl::Status& status) {
  const char* const advice = absl::IsResourceExhausted(status) ? "; raise --memory-limit or take a device with more memory" : "";
  return {status.code(), absl::StrCat("model '", model.name, "': ", std::string(status.message()), advice)};
}

// Loads and measures one model on one device.
class InstanceLoader {
 public:
  InstanceLoader(const RepositoryModel& model, ServingDevice& on, const ModelOptions& options, std::stop_token stop)
      : model_(model),
        spec_(std::make_shared<const ModelSpec>(model.spec)),
        on_(on),
        options_(options),
        stop_(std::move(stop)),
        ladder_(model.spec, on.device->kind()) {}

  absl::Status LoadAndWarm(ModelRegistry& registry) {
    Log(LogLevel::kInfo, "loading", {{"model", model_.name}, {"version", model_.version}, {"device", on_.device->name()}});
    ASSIGN_OR_RETURN(const MemoryFootprint before, InUse());
    const std::string file = model_.file == nullptr ? model_.model_file : model_.file->path();
    const auto settle = [this](std::shared_ptr<const LoadedModel> as_loaded) { return Settled(std::move(as_loaded)); };
    ASSIGN_OR_RETURN(loaded_, registry.Load(*on_.device, file, model_.spec, model_.version, settle));
    precision_.precision = loaded_->precision();  // also where somebody else has loaded it
    if (model_.file != nullptr) RETURN_IF_ERROR(model_.file->CheckUnchanged());
    Log(LogLevel::kInfo, "warming", {{"model", model_.name}, {"device", on_.device->name()}});
    const CalibrationPlan plan = ladder_.ShapesToCalibrate();
    // The smallest first: where it fails, the fault is not the size.
    for (const CalibrationPlan::Length& length : plan.lengths) {
      if (stop_.stop_requested()) return absl::CancelledError("the start was stopped");
      RETURN_IF_ERROR(Warm({1, length.length}));
      if (length.max_rows > 1) RETURN_IF_ERROR(Warm({2, length.length}));
    }
    ASSIGN_OR_RETURN(footprint_, InUse());
    footprint_.allocated -= before.allocated;
    if (footprint_.resident && before.resident) *footprint_.resident -= *before.resident;
    Log(LogLevel::kInfo, "loaded and warm",
        {{"model", model_.name},
         {"device", on_.device->name()},
         {"allocated_bytes", footprint_.allocated},
         {"resident_bytes", footprint_.resident.value_or(Bytes{0})}});
    return absl::OkStatus();
  }

  absl::StatusOr<ModelInstance> Finish() {
    ASSIGN_OR_RETURN(Calibration calibration, KeptOrMeasured());
    if (model_.spec.sequence.padding_check != PaddingCheck::kOff) {
      const RunPass alone = on_.gate.EnterAlone();
      // Each of two answers may be off by what was measured, and on other rows by somewhat more.
      const double noise = 3 * precision_.error.max_error;
      const absl::Status padding = CheckPadding(spec_, ladder_, *loaded_, *on_.device, noise);
      if (!padding.ok() && model_.spec.sequence.padding_check == PaddingCheck::kRefuse) return padding;
      if (!padding.ok()) {
        Log(LogLevel::kWarning, "padding changes the answers of this model",
            {{"model", model_.name}, {"difference", std::string(padding.message())}});
      }
    }
    const std::optional<Bytes> thread_memory = MeasureThreads(calibration);
    CalibratedEstimator tensors(TensorCurves(calibration));
    ModelInstance instance(&on_, loaded_, ladder_,
                           CalibratedEstimator(std::move(calibration.curves), CalibratedEstimator::RoundingOn(on_.device->kind())),
                           std::move(tensors), spec_->safety_margin);
    instance.footprint = footprint_;
    instance.precision = precision_;
    instance.thread_memory = thread_memory;
    return instance;
  }

  const std::shared_ptr<const ModelSpec>& spec() const { return spec_; }

 private:
  // In the precision that the configuration asks for.
  absl::StatusOr<std::shared_ptr<const LoadedModel>> Settled(std::shared_ptr<const LoadedModel> as_loaded) {
    if (!model_.spec.precision.converts()) return as_loaded;
    Log(LogLevel::kInfo, "trying precisions", {{"model", model_.name}, {"device", on_.device->name()}});
    std::vector<BatchShape> shapes;
    for (const CalibrationPlan::Length& length : ladder_.ShapesToCalibrate().lengths) {
      shapes.push_back({std::min<std::int64_t>(2, length.max_rows), length.length});
    }
    const auto run = [this](const LoadedModel& model, const PaddedBatch& batch) {
      const RunPass alone = on_.gate.EnterAlone();
      return on_.device->Run(model, batch);
    };
    ASSIGN_OR_RETURN(SettledModel settled, SettlePrecision(std::move(as_loaded), model_.spec, *on_.device, shapes, run, stop_));
    // Of what was converted to be tried, and of the model's own weights where others are served.
    on_.device->EmptyCache();
    for (const PrecisionTrial& trial : settled.trials) TellTrial(trial);
    Log(LogLevel::kInfo, "precision settled",
        {{"model", model_.name},
         {"device", on_.device->name()},
         {"wanted", model_.spec.precision.automatic ? "AUTO" : NameOf(model_.spec.precision.wanted)},
         {"precision", NameOf(settled.chosen.precision)}});
    precision_ = settled.chosen;
    return std::move(settled.loaded);
  }

  void TellTrial(const PrecisionTrial& trial) const {
    std::vector<std::pair<std::string, LogValue>> fields = {
        {"model", model_.name}, {"device", on_.device->name()}, {"precision", NameOf(trial.precision)}};
    // Not as std::to_string has it: six digits behind the point hide what matters here.
    fields.emplace_back("min_cosine", absl::StrFormat("%.7f", trial.error.min_cosine));
    fields.emplace_back("max_error", absl::StrFormat("%.3g", trial.error.max_error));
    if (model_.spec.precision.automatic && trial.usable.ok()) fields.emplace_back("speedup", trial.speedup);
    if (!trial.usable.ok()) fields.emplace_back("not_used", std::string(trial.usable.message()));
    Log(LogLevel::kInfo, "precision tried", std::move(fields));
  }

  absl::StatusOr<MemoryFootprint> InUse() const {
    ASSIGN_OR_RETURN(const DeviceMemory memory, on_.device->Memory());
    const absl::StatusOr<ProcessMemory> process = ReadProcessMemory();
    return MemoryFootprint{memory.allocated, process.ok() ? std::optional<Bytes>(process->own) : std::nullopt};
  }

  absl::Status Warm(const BatchShape& shape) {
    for (int run = 0; run < kWarmUpRuns; ++run) {
      const PaddedBatch batch = SampleBatch(model_.spec, shape, *on_.device, kSampleSeed);
      const RunPass alone = on_.gate.EnterAlone();
      const RunResult result = on_.device->Run(*loaded_, batch);
      if (const auto* output = std::get_if<RunOutput>(&result)) {
        RETURN_IF_ERROR(CheckOutputs(model_.spec, shape, output->outputs));
      } else if (const auto* error = std::get_if<ModelError>(&result)) {
        return absl::FailedPreconditionError(
            absl::StrCat("it fails in warm-up on ", shape.rows, " rows of length ", shape.length, ": ", error->text));
      } else if (const auto* lost = std::get_if<DeviceLost>(&result)) {
        return absl::InternalError(absl::StrCat("the device was lost in warm-up: ", lost->text));
      }
      // Out of memory: calibration finds out what fits.
    }
    return absl::OkStatus();
  }

  // Everything that the measured figures depend on.
  std::string Key(const CalibrationPlan& plan) const {
    const auto tensor = [](std::string* out, const InputSpec& input) {
      absl::StrAppend(out, input.name, ":", NameOf(input.type), ShapeText(input.dims));
    };
    const auto length = [](std::string* out, const CalibrationPlan::Length& l) {
      absl::StrAppend(out, l.length, "x", l.max_rows);
      if (l.step > 0) absl::StrAppend(out, "/", l.step);
    };
    // What is measured is one form of the model; the name of the one that its file has is left out, as it was before there were
    // others.
    const std::string form =
        loaded_->precision() == Precision::kFp32 ? "" : absl::StrCat(" precision=", NameOf(loaded_->precision()));
    return absl::StrCat("model=", model_.sha256, form, " inputs=", absl::StrJoin(model_.spec.inputs, ",", tensor),
                        " shapes=", absl::StrJoin(plan.lengths, ",", length), " step=", plan.step,
                        " on=", on_.device->fingerprint());
  }

  std::filesystem::path KeepIn(const std::string& key) const {
    // Two devices of a kind share a file; others of the same model lie beside it.
    const std::string name = absl::StrCat(".calibration-", absl::Hex(FnvHash(key), absl::kZeroPad16), ".txt");
    if (!options_.calibration_cache.empty()) {
      return std::filesystem::path(options_.calibration_cache) / absl::StrCat(model_.name, "-", model_.version, name);
    }
    return std::filesystem::path(model_.model_file).parent_path() / name;
  }

  // Only to tell file names apart: the key stands inside the file.
  static std::uint64_t FnvHash(const std::string& text) {
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    return hash;
  }

  absl::StatusOr<Calibration> KeptOrMeasured() {
    const CalibrationPlan plan = ladder_.ShapesToCalibrate();
    ASSIGN_OR_RETURN(const BudgetSnapshot budget, on_.budget->Snapshot());
    const std::string key = Key(plan);
    const std::filesystem::path file = KeepIn(key);
    if (auto kept = KeptCalibration(file, key); kept.ok() && IsEnough(*kept, budget.budget)) {
      Log(LogLevel::kInfo, "calibration kept from an earlier start", {{"model", model_.name}, {"device", on_.device->name()}});
      return kept;
    }
    const auto probe = [&](BatchShape shape) {
      const RunPass alone = on_.gate.EnterAlone();
      return on_.device->Probe(*loaded_, SampleBatch(model_.spec, shape, *on_.device, kSampleSeed), budget.budget);
    };
    const auto progress = [&](std::size_t done, std::size_t total, std::int64_t length) {
      Log(LogLevel::kInfo, "calibrating",
          {{"model", model_.name}, {"device", on_.device->name()}, {"length", length}, {"done", done}, {"of", total}});
    };
    ASSIGN_OR_RETURN(Calibration measured, Calibrate(plan, budget.budget, probe, progress, stop_));
    if (const absl::Status kept = KeepCalibration(file, key, measured); !kept.ok()) {
      Log(LogLevel::kWarning, "the next start will measure again; --calibration-cache names a folder that can be written",
          {{"model", model_.name}, {"reason", std::string(kept.message())}});
    }
    return measured;
  }

  // What each thread beyond those that were calibrated adds to a run's peak: libtorch gives each a buffer, of a size that depends
  // on the length and not on the rows. One row shows the most of it, since all else that is held grows with the rows; of the
  // lengths any may. None where no run may have more threads, or where it cannot be told.
  std::optional<Bytes> MeasureThreads(const Calibration& calibration) const {
    const int extra = on_.threads.most_extra();
    if (extra == 0) return std::nullopt;
    Bytes each{0};
    for (const CalibrationPlan::Length& length : ladder_.ShapesToCalibrate().lengths) {
      const auto curve = std::find_if(calibration.curves.begin(), calibration.curves.end(),
                                      [&](const LengthCurve& c) { return c.length == length.length; });
      if (curve == calibration.curves.end() || curve->points.empty() || curve->points.front().rows != 1) continue;
      PaddedBatch batch = SampleBatch(model_.spec, {1, curve->length}, *on_.device, kSampleSeed);
      batch.threads = on_.threads.limits().most;
      const RunPass alone = on_.gate.EnterAlone();
      const RunResult result = on_.device->Probe(*loaded_, batch, calibration.limit);
      const auto* const output = std::get_if<RunOutput>(&result);
      if (output == nullptr || !output->peak) return std::nullopt;
      const Bytes more = *output->peak - curve->points.front().peak;
      each = std::max(each, Bytes{(more.count + extra - 1) / extra});
    }
    Log(LogLevel::kInfo, "threads measured", {{"model", model_.name}, {"device", on_.device->name()}, {"bytes_each", each}});
    return each;
  }

  const RepositoryModel& model_;
  const std::shared_ptr<const ModelSpec> spec_;
  ServingDevice& on_;
  const ModelOptions& options_;
  const std::stop_token stop_;
  const BucketLadder ladder_;
  std::shared_ptr<const LoadedModel> loaded_;
  MemoryFootprint footprint_;
  PrecisionTrial precision_;
};

}  // namespace

absl::StatusOr<std::vector<CatalogEntry>> LoadModels(const std::vector<RepositoryModel>& models,
                                                     const std::vector<std::unique_ptr<ServingDevice>>& devices,
                                                     ModelRegistry& registry, const ModelOptions& options,
                                                     const std::stop_token& stop, QueueTotals* totals, LengthRecords* lengths) {
  // All are loaded before any is measured, so that each is measured within what all of them leave.
  std::vector<std::vector<InstanceLoader>> loaders;
  for (const RepositoryModel& model : models) {
    auto& on_devices = loaders.emplace_back();
    for (const auto& device : devices) {
      on_devices.emplace_back(model, *device, options, stop);
      if (absl::Status status = on_devices.back().LoadAndWarm(registry); !status.ok()) return Named(model, status);
    }
  }
  for (const auto& device : devices) RETURN_IF_ERROR(device->MarkAtRestAnew());

  std::vector<CatalogEntry> entries;
  for (std::size_t i = 0; i < models.size(); ++i) {
    std::vector<ModelInstance> instances;
    for (InstanceLoader& loader : loaders[i]) {
      auto instance = loader.Finish();
      if (!instance.ok()) return Named(models[i], instance.status());
      instances.push_back(std::move(*instance));
    }
    entries.push_back({std::make_shared<const ServedModel>(loaders[i].front().spec(), models[i].version, std::move(instances),
                                                           totals, lengths != nullptr ? lengths->Of(models[i].spec.name) : nullptr),
                       std::make_shared<const inference::ModelConfig>(models[i].config)});
  }
  return entries;
}

void WarmThread(const ServedModel& model, const ModelInstance& instance) {
  const std::int64_t length = model.spec->variable_length() ? model.spec->sequence.buckets.front() : 0;
  const PaddedBatch batch = SampleBatch(*model.spec, {1, length}, *instance.on->device, kSampleSeed);
  // Its result is of no interest: the model has passed its warm-up.
  static_cast<void>(instance.on->device->Run(*instance.loaded, batch));
}

std::int64_t LargestBatch(const ServedModel& model, const ModelInstance& instance, std::int64_t bucket, Bytes budget) {
  const ReservationEstimator needs = instance.Needs(TimePoint{});
  std::int64_t low = 0;
  std::int64_t high = model.spec->largest_batch();
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    const auto bytes = needs.Peak({middle, bucket});
    const bool fits = bytes.ok() && *bytes <= budget;
    if (fits) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace headroom
