#include "server/plan_command.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/status_macros.h"
#include "runtime/sample_batch.h"
#include "server/fault_report.h"
#include "server/model_loader.h"

namespace headroom {
namespace {

struct PlanRow {
  std::int64_t bucket = 0;
  std::int64_t largest_batch = 0;
  Bytes estimated{0};
  Bytes measured{0};
  Duration latency{0};
};

struct PlanOfInstance {
  std::string model;
  std::int64_t version = 0;
  std::string device;
  bool computes = true;
  Bytes budget{0};
  std::vector<PlanRow> rows;
};

absl::StatusOr<PlanRow> MeasureLargest(const ServedModel& model, const ModelInstance& instance, std::int64_t bucket, Bytes budget) {
  PlanRow row;
  row.bucket = bucket;
  row.largest_batch = LargestBatch(model, instance, bucket, budget);
  if (row.largest_batch == 0) return row;
  const BatchShape shape{row.largest_batch, bucket};
  ASSIGN_OR_RETURN(row.estimated, instance.estimator.Peak(shape));
  Device& device = *instance.on->device;
  const RunResult result = device.Probe(*instance.loaded, SampleBatch(*model.spec, shape, device, 1), budget);
  const auto* const output = std::get_if<RunOutput>(&result);
  if (output == nullptr || !output->peak) {
    return absl::InternalError(absl::StrCat("model '", model.spec->name, "': ", row.largest_batch, " rows of length ", bucket,
                                            " were estimated to fit and did not run"));
  }
  row.measured = *output->peak;
  row.latency = output->compute;
  return row;
}

absl::StatusOr<std::vector<PlanOfInstance>> MakePlans(const PlanOptions& options, const ProgramHooks& hooks) {
  ASSIGN_OR_RETURN(const RepositoryContents repository, ReadRepository(options.models.model_repository));
  // Models hold memory of the devices, so the devices outlive them.
  ASSIGN_OR_RETURN(const auto devices, MakeDevices(options.models, hooks.wrap_device));
  ModelRegistry registry;
  ASSIGN_OR_RETURN(const std::vector<CatalogEntry> entries, LoadModels(repository.models, devices, registry, options.models, {}));
  std::vector<PlanOfInstance> plans;
  for (const CatalogEntry& entry : entries) {
    for (const ModelInstance& instance : entry.model->instances) {
      ASSIGN_OR_RETURN(const BudgetSnapshot budget, instance.on->budget->Snapshot());
      PlanOfInstance plan{entry.model->spec->name,         entry.model->version, instance.on->device->name(),
                          instance.on->device->computes(), budget.budget,        {}};
      for (const CalibrationPlan::Length& length : instance.ladder.ShapesToCalibrate().lengths) {
        ASSIGN_OR_RETURN(PlanRow row, MeasureLargest(*entry.model, instance, length.length, budget.budget));
        plan.rows.push_back(row);
      }
      plans.push_back(std::move(plan));
    }
  }
  return plans;
}

double RowsPerSecond(const PlanRow& row) {
  return row.latency > Duration::zero() ? static_cast<double>(row.largest_batch) / Seconds(row.latency) : 0;
}

std::string AsJson(const std::vector<PlanOfInstance>& plans) {
  nlohmann::ordered_json models = nlohmann::ordered_json::array();
  for (const PlanOfInstance& plan : plans) {
    if (models.empty() || models.back()["name"] != plan.model) {
      models.push_back(
          {{"name", plan.model}, {"version", absl::StrCat(plan.version)}, {"devices", nlohmann::ordered_json::array()}});
    }
    nlohmann::ordered_json buckets = nlohmann::ordered_json::array();
    for (const PlanRow& row : plan.rows) {
      buckets.push_back({{"bucket", row.bucket},
                         {"largest_batch", row.largest_batch},
                         {"estimated_peak_bytes", row.estimated.count},
                         {"measured_peak_bytes", row.measured.count},
                         {"latency_us", Microseconds(row.latency)},
                         {"rows_per_second", RowsPerSecond(row)}});
    }
    models.back()["devices"].push_back(
        {{"device", plan.device}, {"computes", plan.computes}, {"budget_bytes", plan.budget.count}, {"buckets", buckets}});
  }
  return nlohmann::ordered_json{{"models", models}}.dump(2) + "\n";
}

std::string AsTable(const std::vector<PlanOfInstance>& plans) {
  std::string text;
  for (const PlanOfInstance& plan : plans) {
    absl::StrAppend(&text, plan.model, " version ", plan.version, " on ", plan.device, ": batches may hold ", ToString(plan.budget),
                    " together\n");
    if (!plan.computes) absl::StrAppend(&text, "  (a dry card: memory is real, times mean nothing)\n");
    absl::StrAppend(&text, "  bucket  largest batch  estimated peak   measured peak     latency   rows/s\n");
    for (const PlanRow& row : plan.rows) {
      if (row.largest_batch == 0) {
        absl::StrAppendFormat(&text, "  %6d  nothing fits\n", row.bucket);
        continue;
      }
      absl::StrAppendFormat(&text, "  %6d  %13d  %14s  %14s  %8.2f ms  %7.1f\n", row.bucket, row.largest_batch,
                            ToString(row.estimated), ToString(row.measured), Seconds(row.latency) * 1000, RowsPerSecond(row));
    }
  }
  return text;
}

}  // namespace

int PlanCommand(const PlanOptions& options, const ProgramHooks& hooks) {
  SetLogSink(MakeLogSink(LogFormat::kText, LogLevel::kInfo, STDERR_FILENO));
  const auto plans = MakePlans(options, hooks);
  if (!plans.ok()) return ReportFault(plans.status());
  std::fputs((options.json ? AsJson(*plans) : AsTable(*plans)).c_str(), stdout);
  return 0;
}

}  // namespace headroom
