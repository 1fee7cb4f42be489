#include "batching/batcher.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "batching/batch_run.h"

namespace headroom {
namespace {

// How soon to look again at rows that wait for memory: a neighbour on the device frees it without telling.
constexpr Duration kMemoryPoll = std::chrono::milliseconds(20);

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

void Batcher::Run(const std::stop_token& stop) {
  // A stop is work too: whoever sleeps must see it.
  const std::stop_callback wake(stop, [this] { work_.Notify(); });
  while (true) {
    const std::uint64_t seen = work_.count();
    const StepResult result = Step();
    if (result.ran) continue;
    if (stop.stop_requested() && RowsWaiting() == 0) return;
    work_.WaitBeyond(seen, result.next_wake, clock_);
  }
}

Batcher::StepResult Batcher::Step() {
  StepResult nothing;
  for (const auto& model : ModelsByTurn()) {
    const StepResult result = TryModel(model);
    if (result.ran) return result;
    nothing.next_wake = std::min(nothing.next_wake, result.next_wake);
    if (result.holds_back) break;
  }
  return nothing;
}

std::vector<std::shared_ptr<const ServedModel>> Batcher::ModelsByTurn() const {
  using Turn = std::pair<Duration, RowUrgency>;
  std::vector<std::pair<Turn, std::shared_ptr<const ServedModel>>> waiting;
  const std::shared_ptr<const ModelSet::Models> models = models_.All();
  for (const auto& model : *models) {
    if (model->InstanceOn(device_) == nullptr) continue;
    if (const auto urgency = model->queue.most_urgent()) {
      waiting.emplace_back(Turn{device_.turns.StartOf(model->spec->name), *urgency}, model);
    }
  }
  std::stable_sort(waiting.begin(), waiting.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::shared_ptr<const ServedModel>> ordered;
  ordered.reserve(waiting.size());
  for (auto& [turn, model] : waiting) ordered.push_back(std::move(model));
  return ordered;
}

std::int64_t Batcher::RowsWaiting() const {
  const std::shared_ptr<const ModelSet::Models> models = models_.All();
  std::int64_t rows = 0;
  for (const auto& model : *models) {
    if (model->InstanceOn(device_) != nullptr) rows += model->queue.rows_waiting();
  }
  return rows;
}

Batcher::StepResult Batcher::TryModel(const std::shared_ptr<const ServedModel>& model) {
  Work work{model, model->InstanceOn(device_), {}, {}, {}, {}};
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
  device_.turns.Take(model->spec->name, work.instance->ExpectedRun(work.claim.batch.shape));
  // An idle worker may take the next batch meanwhile, of any model.
  if (RowsWaiting() > 0) work_.Notify();
  BatchRun run(device_, *model, *work.instance, observer_, clock_, work.started, std::move(work.threads));
  run.Run(std::move(work.claim), std::move(work.reservation), [this] { work_.Notify(); });
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
      .max_rows = LargestBatchAt(device_.degradation, spec.largest_batch()),
      .max_delay = work_.hurried() ? Duration::zero() : spec.queue.max_delay,
      .max_overtaking = kMaxOvertaking,
      .preferred_rows = spec.queue.preferred_rows,
      .idle_workers = std::max(1, device_.workers - device_.threads.runs()),
  };
  const ReservationEstimator needs = work.instance->Needs(work.started);
  work.claim = work.model->queue.ClaimBatch(work.instance->ladder, limits, needs, work.instance->latency->times(), work.started);
  if (!work.claim.rows.empty()) work.claim.batch.needs += TakeThreads(work);
  // What the batch does not need is free for the other workers from here on.
  work.reservation.Shrink(work.claim.rows.empty() ? Bytes{0} : work.claim.batch.needs);
  return absl::OkStatus();
}

Bytes Batcher::TakeThreads(Work& work) {
  work.threads = device_.threads.Take(device_.workers, RowsWaiting(), work.instance->ExpectedRun(work.claim.batch.shape));
  if (work.threads.extra() == 0) return {0};
  const Bytes more = work.instance->NeedsOfThreads(work.threads.extra(), work.claim.batch.shape.length);
  if (work.instance->thread_memory.has_value() && work.claim.batch.needs + more <= work.reservation.bytes()) return more;
  work.threads.GiveExtraBack();
  return {0};
}

void Batcher::FinishDead(const Claim& claim) {
  FinishDeadRows(claim);
  for (std::size_t i = 0; i < claim.refused.size(); ++i) {
    claim.refused[i].request->RowFailed(OverBudgetError(claim.refused_need[i], device_.budget->idle_budget()),
                                        Outcome::kOverBudget);
  }
}

}  // namespace headroom
