#include "batching/batch_run.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/log.h"
#include "batching/collator.h"
#include "runtime/output_check.h"

namespace headroom {

void BatchRun::Run(Claim claim, Reservation reservation, const std::function<void()>& memory_is_free) {
  bucket_ = claim.batch.bucket;
  reserved_ = claim.batch.needs;
  parts_.push_back({std::move(claim.rows), claim.batch.shape, claim.batch.limited_by});
  while (!parts_.empty()) {
    Part part = std::move(parts_.back());
    parts_.pop_back();
    const std::optional<RunResult> ran = RunPart(part);
    if (!ran) continue;
    const RunResult& result = *ran;
    const NextTry next = std::holds_alternative<RunOutput>(result) ? NextTry::kGiveUp : AfterFailure(part, result);
    if (next == NextTry::kHalves || next == NextTry::kAlone) {
      observer_.BatchRetried(model_.spec->name,
                             std::holds_alternative<OutOfMemory>(result) ? RetryReason::kOutOfMemory : RetryReason::kModelError);
      Retry(std::move(part), next);
      continue;
    }
    const bool lost = std::holds_alternative<DeviceLost>(result);
    if (parts_.empty() || lost) {
      reservation.Shrink({0});
      threads_.End();
      memory_is_free();
    }
    Finish(std::move(part), result, next);
    if (lost) {
      for (const Part& left : parts_) Fail(left.rows, absl::UnavailableError("the device was lost"), Outcome::kUnavailable);
      parts_.clear();
    }
  }
  // Given back already, but where nobody waited any more for the last part.
  if (reservation.bytes() > Bytes{0}) {
    reservation.Shrink({0});
    memory_is_free();
  }
}

bool BatchRun::DropDeadRows(Part& part, TimePoint now) {
  // A row that has started is finished, whatever its deadline.
  const auto expired = [&](const QueuedRow& row) { return row.retries == 0 && row.request->deadline() <= now; };
  const auto dead = std::stable_partition(part.rows.begin(), part.rows.end(),
                                          [&](const QueuedRow& row) { return !row.request->gone() && !expired(row); });
  Claim claim;
  for (auto row = dead; row != part.rows.end(); ++row) {
    (expired(*row) ? claim.expired : claim.gone).push_back(std::move(*row));
  }
  FinishDeadRows(claim);
  if (dead == part.rows.end()) return true;
  part.rows.erase(dead, part.rows.end());
  if (part.rows.empty()) return false;
  part.shape = PartOf(part.rows).shape;
  return true;
}

std::optional<RunResult> BatchRun::RunPart(Part& part) {
  // Before the look at who is dead: a run that has the device to itself may have been waited for.
  const RunPass pass = part.alone ? device_.gate.EnterAlone() : device_.gate.Enter();
  const TimePoint began = clock_.Now();
  if (!DropDeadRows(part, began)) return std::nullopt;
  if (part.rows.front().retries == 0) started_ = began;
  RunResult result = Execute(part);
  if (const auto* output = std::get_if<RunOutput>(&result)) {
    // All of it keeps the worker, copying included. Of runs with more threads than were calibrated nothing is learned: they are
    // rare where it matters how long a batch takes, and what they would teach would not hold there.
    if (threads_.extra() == 0) instance_.latency->Observe(part.shape, std::max(output->compute, clock_.Now() - began));
  }
  return result;
}

RunResult BatchRun::Execute(const Part& part) {
  const ModelSpec& spec = *model_.spec;
  Device& device = *device_.device;
  try {
    const RunEntry under_way = device_.runs.Enter({spec.name, part.shape, clock_.Now(), instance_.ExpectedRun(part.shape)});
    const HostReservation staging = device_.ReserveStaging(spec, part.shape);
    const TimePoint began = clock_.Now();
    PaddedBatch batch = Collate(spec, part.rows, part.shape, device);
    batch.threads = threads_.threads();
    collate_ = clock_.Now() - began;
    if (part.alone) device.EmptyCache();
    RunResult result = device.Run(*instance_.loaded, batch);
    auto* const output = std::get_if<RunOutput>(&result);
    if (output == nullptr) return result;
    if (const absl::Status checked = CheckOutputs(spec, part.shape, output->outputs); !checked.ok()) {
      return ModelError{std::string(checked.message())};
    }
    const TimePoint ran = clock_.Now();
    Scatter(spec, part.rows, part.shape, output->outputs);
    output->outputs.clear();
    scatter_ = clock_.Now() - ran;
    return result;
  } catch (const std::bad_alloc&) {
    // The host's memory for staging and answers; the mates of other batches must not suffer.
    return OutOfMemory{};
  }
}

NextTry BatchRun::AfterFailure(const Part& part, const RunResult& result) {
  const std::string& device = device_.device->name();
  if (const auto* full = std::get_if<OutOfMemory>(&result)) return AfterNoMemory(part, *full);
  if (const auto* error = std::get_if<ModelError>(&result)) {
    Log(LogLevel::kError, "the model failed",
        {{"model", model_.spec->name}, {"device", device}, {"rows", part.shape.rows}, {"error", error->text}});
    return AfterModelError(part.shape.rows);
  }
  observer_.DeviceWasLost(device, std::get<DeviceLost>(result).text);
  return NextTry::kGiveUp;
}

NextTry BatchRun::AfterNoMemory(const Part& part, const OutOfMemory& failed) {
  const TimePoint now = clock_.Now();
  // Told in what the allocator takes, where it rounds, so set against the estimate of that.
  const auto estimated = instance_.estimator.Peak(part.shape);
  if (estimated.ok()) {
    instance_.learned->correction.ObserveAtLeast(part.shape.length, *estimated + instance_.OfThreads(threads_.extra()),
                                                 failed.at_least);
  }
  instance_.learned->ceilings.Lower(part.shape, now);
  device_.device->EmptyCache();
  observer_.OutOfMemory(model_.spec->name, device_.device->name());
  Log(LogLevel::kWarning, "out of memory",
      {{"model", model_.spec->name},
       {"device", device_.device->name()},
       {"rows", part.shape.rows},
       {"length", part.shape.length},
       {"reserved_bytes", reserved_},
       {"would_have_held_bytes", failed.at_least}});
  OutOfMemoryCase what{.rows = part.shape.rows, .was_alone = part.alone, .retries = part.rows.front().retries};
  // Where the device does not tell its memory nothing is known of others: the next turn finds out that it is lost.
  if (const auto memory = device_.budget->Snapshot(); memory.ok()) {
    what.needs = instance_.Needs(now).Peak(part.shape).value_or(Bytes{0});
    what.budget = memory->budget;
    what.idle_budget = device_.budget->idle_budget();
  }
  return AfterOutOfMemory(what);
}

void BatchRun::Retry(Part part, NextTry how) {
  threads_.GiveExtraBack();
  for (QueuedRow& row : part.rows) ++row.retries;
  if (how == NextTry::kAlone) {
    part.alone = true;
    return parts_.push_back(std::move(part));
  }
  const auto middle = part.rows.begin() + static_cast<std::ptrdiff_t>(part.rows.size() / 2);
  parts_.push_back(PartOf({std::make_move_iterator(middle), std::make_move_iterator(part.rows.end())}));
  part.rows.erase(middle, part.rows.end());
  parts_.push_back(PartOf(std::move(part.rows)));
}

BatchRun::Part BatchRun::PartOf(std::vector<QueuedRow> rows) const {
  BatchShape shape{static_cast<std::int64_t>(rows.size()), 0};
  for (const QueuedRow& row : rows) {
    const Placement& placement = row.row().placement;
    shape.length = std::max(shape.length, instance_.ladder.PaddedLength(placement.bucket, placement.kept_length));
  }
  return {std::move(rows), shape};
}

void BatchRun::Finish(Part part, const RunResult& result, NextTry next) {
  if (const auto* output = std::get_if<RunOutput>(&result)) return Succeed(part, *output);
  if (next == NextTry::kWaitAgain) return WaitAgain(std::move(part));
  if (std::holds_alternative<OutOfMemory>(result)) {
    return Fail(part.rows, absl::ResourceExhaustedError("the device ran out of memory on this request alone"),
                Outcome::kOverBudget);
  }
  if (std::holds_alternative<ModelError>(result)) {
    return Fail(part.rows, absl::InternalError("the model failed on this request"), Outcome::kFailed);
  }
  Fail(part.rows, absl::UnavailableError("the device was lost"), Outcome::kUnavailable);
}

void BatchRun::Succeed(const Part& part, const RunOutput& output) {
  BatchReport report;
  report.model = model_.spec->name;
  report.device = device_.device->name();
  report.bucket = bucket_;
  report.rows = part.shape.rows;
  report.limited_by = part.limited_by;
  for (const QueuedRow& row : part.rows) {
    report.useful_tokens += row.row().placement.kept_length;
    report.waits.push_back(started_ - row.request->arrived());
    if (row.request->deadline() <= started_) ++report.late_rows;
  }
  report.padding_tokens = part.shape.rows * part.shape.length - report.useful_tokens;
  report.compute = output.compute;
  report.collate = collate_;
  report.scatter = scatter_;
  // Known, since the batch was planned with it.
  const Bytes of_threads = instance_.OfThreads(threads_.extra());
  report.estimated = instance_.estimator.Peak(part.shape).value_or(Bytes{0}) + of_threads;
  report.expected_tensors = instance_.tensor_estimator.Peak(part.shape).value_or(Bytes{0}) + of_threads;
  report.extra_threads = threads_.extra();
  report.actual = output.tensor_peak();
  if (report.actual) {
    report.under_estimated = instance_.learned->correction.Observe(part.shape.length, report.expected_tensors, *report.actual);
  }
  observer_.BatchFinished(report);

  for (std::size_t i = 0; i < part.rows.size(); ++i) {
    part.rows[i].request->RowSucceeded({.batch_rows = part.shape.rows,
                                        .bucket = bucket_,
                                        .padded_length = part.shape.length,
                                        .queue = report.waits[i],
                                        .compute = output.compute,
                                        .estimated = report.estimated,
                                        .retries = part.rows[i].retries,
                                        .collate = collate_,
                                        .scatter = scatter_});
  }
}

void BatchRun::WaitAgain(Part part) {
  Log(LogLevel::kInfo, "a row waits for memory that others hold", {{"model", model_.spec->name}, {"length", part.shape.length}});
  for (QueuedRow& row : part.rows) {
    ++row.retries;
    const std::shared_ptr<Request> request = row.request;
    if (const absl::Status back = model_.queue.PutBack(std::move(row)); !back.ok()) request->RowFailed(back, Outcome::kUnavailable);
  }
}

void BatchRun::Fail(const std::vector<QueuedRow>& rows, const absl::Status& status, Outcome outcome) {
  for (const QueuedRow& row : rows) row.request->RowFailed(status, outcome);
}

}  // namespace headroom
