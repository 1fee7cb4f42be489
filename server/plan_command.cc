#include "server/plan_command.h"

#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>

#include "base/log.h"
#include "base/status_macros.h"
#include "runtime/sample_batch.h"
#include "server/fault_report.h"
#include "server/model_loader.h"
#include "server/plan_report.h"

namespace headroom {
namespace {

constexpr std::uint64_t kSampleSeed = 1;
constexpr std::array<double, 4> kPercentiles = {50, 90, 99, 99.9};

RunResult RunOnce(const ServedModel& model, const ModelInstance& instance, BatchShape shape) {
  Device& device = *instance.on->device;
  return device.Run(*instance.loaded, SampleBatch(*model.spec, shape, device, kSampleSeed));
}

absl::StatusOr<PlanRow> MeasureLargest(const ServedModel& model, const ModelInstance& instance,
                                       const CalibrationPlan::Length& length, Bytes budget) {
  PlanRow row;
  row.bucket = length.length;
  row.largest_batch = std::min(length.max_rows, LargestBatch(model, instance, length.length, budget));
  if (row.largest_batch == 0) return row;
  const BatchShape shape{row.largest_batch, length.length};
  ASSIGN_OR_RETURN(row.estimated, instance.estimator.Peak(shape));
  Device& device = *instance.on->device;
  const RunResult result = device.Probe(*instance.loaded, SampleBatch(*model.spec, shape, device, kSampleSeed), budget);
  const auto* const output = std::get_if<RunOutput>(&result);
  if (output == nullptr || !output->peak) {
    return absl::InternalError(absl::StrCat("model '", model.spec->name, "': ", row.largest_batch, " rows of length ",
                                            length.length, " were estimated to fit and did not run"));
  }
  row.measured = *output->peak;
  row.latency = output->compute;
  row.allocated = output->tensor_peak();
  return row;
}

// What each shape takes on the device, measured once.
class MeasuredTimes {
 public:
  MeasuredTimes(const ServedModel& model, const ModelInstance& instance) : model_(model), instance_(instance) {}

  double Of(BatchShape shape) {
    const auto [entry, fresh] = seconds_.try_emplace(shape, 0);
    if (fresh) {
      const RunResult result = RunOnce(model_, instance_, shape);
      if (const auto* const output = std::get_if<RunOutput>(&result)) entry->second = Seconds(output->compute);
    }
    return entry->second;
  }

 private:
  const ServedModel& model_;
  const ModelInstance& instance_;
  std::map<BatchShape, double> seconds_;
};

std::string PaddingOf(const BucketLadder& ladder) {
  switch (ladder.ShapesToCalibrate().step) {
    case 0: return "to the bucket";
    case 1: return "to the longest row of a batch";
    default: break;
  }
  return absl::StrCat("to a multiple of ", ladder.ShapesToCalibrate().step);
}

PercentilePlan PlanPercentile(const ServedModel& model, const ModelInstance& instance, const TrafficLengths& traffic,
                              double percentile, Bytes budget) {
  PercentilePlan plan;
  plan.percentile = percentile;
  plan.length = LengthAt(traffic, percentile / 100);
  const auto placement = instance.ladder.Place(plan.length);
  if (!placement.ok()) return plan;
  const std::int64_t padded = instance.ladder.PaddedLength(placement->bucket, placement->kept_length);
  const std::int64_t rows = placement->alone ? 1 : model.spec->largest_batch();
  const auto needs = instance.Needs(TimePoint{}).Peak({rows, padded});
  if (!needs.ok()) return plan;
  plan.shape = {rows, padded};
  plan.needs = *needs;
  plan.largest_batch = std::min(rows, LargestBatch(model, instance, padded, budget));
  return plan;
}

std::optional<LadderAdvice> AdviseOn(const ServedModel& model, const TrafficLengths& traffic, const PlanOptions& options) {
  const SequenceSpec& sequence = model.spec->sequence;
  LengthCounts lengths;
  for (const auto& [length, rows] : traffic.weights) lengths.push_back({length, rows});
  lengths = BatchedLengths(lengths, sequence);
  if (lengths.empty()) return std::nullopt;
  const auto most = options.buckets ? static_cast<std::size_t>(*options.buckets) : sequence.buckets.size();
  return AdviseLadder(lengths, sequence.buckets, most, options.bucket_multiple);
}

std::optional<TrafficPlan> PlanTraffic(const ServedModel& model, const ModelInstance& instance, const TrafficLengths& traffic,
                                       const InstancePlan& plan, const PlanOptions& options) {
  if (!model.spec->variable_length()) return std::nullopt;
  std::map<std::int64_t, std::int64_t> largest;
  for (const PlanRow& row : plan.rows) largest[row.bucket] = row.largest_batch;

  TrafficPlan made;
  made.padding = PaddingOf(instance.ladder);
  made.mix = MixOf(traffic, model.spec->sequence.tiers, model.spec->sequence.buckets, instance.ladder,
                   [&](std::int64_t bucket) { return largest[bucket]; });
  const ReservationEstimator needs = instance.Needs(TimePoint{});
  for (const TrafficClass& of : made.mix.classes) {
    const auto bytes = of.largest_batch > 0 ? needs.Peak({of.largest_batch, of.bucket}) : Bytes{0};
    made.full_batches.push_back(bytes.value_or(Bytes{0}));
  }
  for (const double percentile : kPercentiles) {
    made.percentiles.push_back(PlanPercentile(model, instance, traffic, percentile, plan.budget));
  }
  if (plan.computes) {
    MeasuredTimes times(model, instance);
    made.rows_per_second = RowsPerSecond(made.mix, [&](BatchShape shape) { return times.Of(shape); });
  }
  made.ladder = AdviseOn(model, traffic, options);
  return made;
}

// The plans of one device.
class DevicePlanner {
 public:
  DevicePlanner(const std::vector<RepositoryModel>& models, const PlanOptions& options, const PlanReport& report,
                std::unique_ptr<ServingDevice> device)
      : models_(models), options_(options), report_(report) {
    devices_.push_back(std::move(device));
  }

  absl::StatusOr<std::vector<InstancePlan>> Plan(const std::optional<PlanCard>& card) {
    const Device& device = *devices_.front()->device;
    std::vector<InstancePlan> plans;
    for (const RepositoryModel& model : models_) {
      InstancePlan& plan = plans.emplace_back();
      plan.model = model.name;
      plan.version = model.version;
      plan.device = device.name();
      plan.computes = device.computes();
      plan.card = card;
    }
    const absl::Status measured = Measure(plans);
    // That it does not fit a card is what was asked.
    if (!card || !absl::IsResourceExhausted(measured)) {
      if (!measured.ok()) return measured;
      return plans;
    }
    for (InstancePlan& plan : plans) {
      plan.unfit = std::string(measured.message());
      plan.rows.clear();
      plan.traffic.reset();
      plan.calibration.clear();
    }
    return plans;
  }

 private:
  absl::Status Measure(std::vector<InstancePlan>& plans) {
    LoadWeights(plans);
    ASSIGN_OR_RETURN(const std::vector<CatalogEntry> entries, LoadModels(models_, devices_, registry_, options_.models, {}));
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const ServedModel& model = *entries[i].model;
      const ModelInstance& instance = model.instances.front();
      InstancePlan& plan = plans[i];
      ASSIGN_OR_RETURN(const BudgetSnapshot budget, instance.on->budget->Snapshot());
      ASSIGN_OR_RETURN(const DeviceMemory memory, instance.on->device->Memory());
      plan.budget = budget.budget;
      if (model.spec->precision.converts()) plan.weights = instance.footprint.allocated;
      plan.at_rest = memory.allocated;
      for (const CalibrationPlan::Length& length : instance.ladder.ShapesToCalibrate().lengths) {
        ASSIGN_OR_RETURN(PlanRow row, MeasureLargest(model, instance, length, budget.budget));
        plan.rows.push_back(row);
      }
      plan.calibration = instance.estimator.curves();
      if (report_.traffic) plan.traffic = PlanTraffic(model, instance, *report_.traffic, plan, options_);
    }
    return absl::OkStatus();
  }

  // Loads each model by itself, so that what it adds is known; LoadModels then finds it loaded. What fails here fails there again,
  // with a better text.
  void LoadWeights(std::vector<InstancePlan>& plans) {
    Device& device = *devices_.front()->device;
    for (std::size_t i = 0; i < models_.size(); ++i) {
      // What is not served as its file has it is settled in LoadModels, which tells what the form that is kept has added.
      if (models_[i].spec.precision.converts()) continue;
      const auto before = device.Memory();
      auto loaded = registry_.Load(device, models_[i].model_file, models_[i].spec, models_[i].version);
      const auto after = device.Memory();
      if (!loaded.ok() || !before.ok() || !after.ok()) return;
      plans[i].weights = after->allocated - before->allocated;
      loaded_.push_back(*std::move(loaded));
    }
  }

  const std::vector<RepositoryModel>& models_;
  const PlanOptions& options_;
  const PlanReport& report_;
  // Models hold memory of the devices, so the devices outlive them.
  std::vector<std::unique_ptr<ServingDevice>> devices_;
  ModelRegistry registry_;
  std::vector<std::shared_ptr<const LoadedModel>> loaded_;
};

absl::StatusOr<PlanReport> MakeReport(const PlanOptions& options, const ProgramHooks& hooks) {
  PlanReport report;
  report.card_allowance = options.card_allowance;
  report.traffic_file = options.traffic;
  if (!options.traffic.empty()) {
    ASSIGN_OR_RETURN(report.traffic, ReadTraffic(options.traffic, options.traffic_mix));
  }
  ASSIGN_OR_RETURN(const RepositoryContents repository,
                   ReadRepository(options.models.model_repository, options.models.model_manifest));
  ModelOptions models = options.models;
  if (!options.cards.empty()) models.device = {DeviceSelection::Kind::kCuda, {}};
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<ServingDevice>> devices, MakeDevices(models, hooks.wrap_device));
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto card = i < options.cards.size() ? std::optional(options.cards[i]) : std::nullopt;
    DevicePlanner planner(repository.models, options, report, std::move(devices[i]));
    ASSIGN_OR_RETURN(std::vector<InstancePlan> plans, planner.Plan(card));
    report.plans.insert(report.plans.end(), std::make_move_iterator(plans.begin()), std::make_move_iterator(plans.end()));
  }
  return report;
}

}  // namespace

int PlanCommand(const PlanOptions& options, const ProgramHooks& hooks) {
  SetLogSink(MakeLogSink(LogFormat::kText, LogLevel::kInfo, STDERR_FILENO));
  const auto report = MakeReport(options, hooks);
  if (!report.ok()) return ReportFault(report.status());
  std::fputs((options.json ? AsJson(*report) : AsTable(*report)).c_str(), stdout);
  return 0;
}

}  // namespace headroom
