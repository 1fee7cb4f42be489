#include "batching/batcher.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "batching/collator.h"
#include "runtime/output_check.h"

namespace headroom {
namespace {

// How soon to look again at rows that wait for memory: a neighbour on the device frees it without telling.
constexpr Duration kMemoryPoll = std::chrono::milliseconds(20);
// How long small rows may pass by a large one that waits for the memory of running batches.
constexpr Duration kMaxOvertaking = std::chrono::milliseconds(500);

BatchReport ReportOf(const ServedModel& model, const Claim& claim) {
  BatchReport report;
  report.model = model.spec->name;
  report.bucket = claim.batch.bucket;
  report.rows = claim.batch.shape.rows;
  report.limited_by = claim.batch.limited_by;
  for (const QueuedRow& row : claim.rows) report.useful_tokens += row.row().placement.kept_length;
  report.padding_tokens = claim.batch.shape.rows * claim.batch.shape.length - report.useful_tokens;
  return report;
}

}  // namespace

void WorkSignal::Notify() {
  {
    MutexLock lock(mutex_);
    ++count_;
  }
  condition_.NotifyAll();
}

std::uint64_t WorkSignal::count() const {
  MutexLock lock(mutex_);
  return count_;
}

void WorkSignal::WaitBeyond(std::uint64_t seen, TimePoint time, Clock& clock) {
  MutexLock lock(mutex_);
  while (count_ == seen) {
    if (!clock.WaitUntil(mutex_, condition_, time)) return;
  }
}

void FinishDeadRows(const Claim& claim) {
  for (const QueuedRow& row : claim.gone) row.request->RowDropped();
  for (const QueuedRow& row : claim.expired) {
    row.request->RowFailed(absl::DeadlineExceededError("the time to wait was up before the request could start"),
                           Outcome::kExpired);
  }
}

void Batcher::Run(const std::stop_token& stop) {
  // A stop is work too: whoever sleeps must see it.
  const std::stop_callback wake(stop, [this] { work_.Notify(); });
  while (true) {
    const std::uint64_t seen = work_.count();
    const StepResult result = Step();
    if (result.ran) continue;
    if (stop.stop_requested() && ModelsByUrgency().empty()) return;
    work_.WaitBeyond(seen, result.next_wake, clock_);
  }
}

Batcher::StepResult Batcher::Step() {
  StepResult nothing;
  for (const auto& model : ModelsByUrgency()) {
    const StepResult result = TryModel(model);
    if (result.ran) return result;
    nothing.next_wake = std::min(nothing.next_wake, result.next_wake);
    if (result.holds_back) break;
  }
  return nothing;
}

std::vector<std::shared_ptr<const ServedModel>> Batcher::ModelsByUrgency() const {
  std::vector<std::pair<RowUrgency, std::shared_ptr<const ServedModel>>> waiting;
  const std::shared_ptr<const ModelSet::Models> models = models_.All();
  for (const auto& [name, model] : *models) {
    if (model->InstanceOn(device_) == nullptr) continue;
    if (const auto urgency = model->queue.most_urgent()) waiting.emplace_back(*urgency, model);
  }
  std::stable_sort(waiting.begin(), waiting.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::shared_ptr<const ServedModel>> ordered;
  ordered.reserve(waiting.size());
  for (auto& [urgency, model] : waiting) ordered.push_back(std::move(model));
  return ordered;
}

Batcher::StepResult Batcher::TryModel(const std::shared_ptr<const ServedModel>& model) {
  Work work{model, model->InstanceOn(device_), {}, {}, {}};
  if (const absl::Status claimed = ClaimWithin(work); !claimed.ok()) {
    observer_.DeviceWasLost(device_.device->name(), std::string(claimed.message()));
    return {.next_wake = After(clock_.Now(), kMemoryPoll)};
  }
  FinishDead(work.claim);
  if (work.claim.rows.empty()) {
    TimePoint wake = work.claim.next_wake;
    if (work.claim.rows_wait) wake = std::min(wake, After(work.started, kMemoryPoll));
    return {.holds_back = work.claim.holds_back, .next_wake = wake};
  }
  // An idle worker may take the next batch meanwhile, of any model.
  if (!ModelsByUrgency().empty()) work_.Notify();
  RunBatch(work);
  return {.ran = true};
}

absl::Status Batcher::ClaimWithin(Work& work) {
  const ModelSpec& spec = *work.model->spec;
  MutexLock turn(device_.planning);
  ASSIGN_OR_RETURN(work.reservation, device_.budget->ReserveAvailable());
  work.started = clock_.Now();
  const PlanLimits limits{
      .available = work.reservation.bytes(),
      .budget = work.reservation.budget(),
      .idle_budget = device_.budget->idle_budget(),
      .refuse_too_large = work.model->instances.size() == 1,
      .max_rows = spec.largest_batch(),
      .max_delay = work_.hurried() ? Duration::zero() : spec.queue.max_delay,
      .max_overtaking = kMaxOvertaking,
      .preferred_rows = spec.queue.preferred_rows,
  };
  const EstimatorWithMargin needs(work.instance->estimator, spec.safety_margin);
  work.claim = work.model->queue.ClaimBatch(work.instance->ladder, limits, needs, work.started);
  // What the batch does not need is free for the other workers from here on.
  work.reservation.Shrink(work.claim.rows.empty() ? Bytes{0} : work.claim.batch.needs);
  return absl::OkStatus();
}

void Batcher::FinishDead(const Claim& claim) {
  FinishDeadRows(claim);
  for (std::size_t i = 0; i < claim.refused.size(); ++i) {
    claim.refused[i].request->RowFailed(OverBudgetError(claim.refused_need[i], device_.budget->idle_budget()),
                                        Outcome::kOverBudget);
  }
}

void Batcher::RunBatch(Work& work) {
  const ServedModel& model = *work.model;
  const std::string& device = device_.device->name();
  const RunResult result = Execute(work);
  // Before the answers go out, so that whoever reads the figures after an answer finds them settled.
  work.reservation.Shrink({0});
  work_.Notify();

  if (const auto* output = std::get_if<RunOutput>(&result)) return Succeed(work, *output);
  if (std::get_if<OutOfMemory>(&result) != nullptr) {
    device_.device->EmptyCache();
    observer_.OutOfMemory(model.spec->name, device);
    Log(LogLevel::kWarning, "out of memory",
        {{"model", model.spec->name},
         {"device", device},
         {"rows", work.claim.batch.shape.rows},
         {"length", work.claim.batch.shape.length},
         {"reserved_bytes", work.claim.batch.needs}});
    return Fail(work, absl::ResourceExhaustedError("the device ran out of memory on this batch"), Outcome::kOverBudget);
  }
  if (const auto* error = std::get_if<ModelError>(&result)) {
    Log(LogLevel::kError, "the model failed", {{"model", model.spec->name}, {"device", device}, {"error", error->text}});
    return Fail(work, absl::InternalError("the model failed on this request"), Outcome::kFailed);
  }
  const auto& lost = std::get<DeviceLost>(result);
  observer_.DeviceWasLost(device, lost.text);
  Fail(work, absl::UnavailableError("the device was lost"), Outcome::kUnavailable);
}

RunResult Batcher::Execute(const Work& work) {
  const ModelSpec& spec = *work.model->spec;
  const BatchShape& shape = work.claim.batch.shape;
  Device& device = *device_.device;
  try {
    const PaddedBatch batch = Collate(spec, work.claim.rows, shape, device);
    RunResult result = device.Run(*work.instance->loaded, batch);
    auto* const output = std::get_if<RunOutput>(&result);
    if (output == nullptr) return result;
    if (const absl::Status checked = CheckOutputs(spec, shape, output->outputs); !checked.ok()) {
      return ModelError{std::string(checked.message())};
    }
    Scatter(spec, work.claim.rows, shape, output->outputs);
    output->outputs.clear();
    return result;
  } catch (const std::bad_alloc&) {
    // The host's memory for staging and answers; the mates of other batches must not suffer.
    return OutOfMemory{};
  }
}

void Batcher::Succeed(const Work& work, const RunOutput& output) {
  const PlannedBatch& batch = work.claim.batch;
  BatchReport report = ReportOf(*work.model, work.claim);
  report.device = device_.device->name();
  // On CUDA a run tells what its tensors took, while the estimate is of what the allocator takes for them: no ratio of the two.
  if (device_.device->kind() == DeviceKind::kCpu) report.actual = output.peak;
  report.compute = output.compute;
  // Known, since the batch was planned with it.
  report.estimated = work.instance->estimator.Peak(batch.shape).value_or(Bytes{0});
  for (const QueuedRow& row : work.claim.rows) report.waits.push_back(work.started - row.request->arrived());
  observer_.BatchFinished(report);

  for (std::size_t i = 0; i < work.claim.rows.size(); ++i) {
    work.claim.rows[i].request->RowSucceeded({.batch_rows = batch.shape.rows,
                                              .bucket = batch.bucket,
                                              .padded_length = batch.shape.length,
                                              .queue = report.waits[i],
                                              .compute = output.compute,
                                              .estimated = report.estimated});
  }
}

void Batcher::Fail(const Work& work, const absl::Status& status, Outcome outcome) {
  for (const QueuedRow& row : work.claim.rows) row.request->RowFailed(status, outcome);
}

}  // namespace headroom
