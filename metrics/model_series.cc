#include "metrics/model_series.h"

#include <algorithm>

namespace headroom {
namespace {

// In the order of Outcome.
constexpr std::array<const char*, 9> kOutcomeNames = {"ok",      "invalid",   "not_found",   "queue_full", "over_budget",
                                                      "expired", "cancelled", "unavailable", "failed"};

// In the order of LoadReason.
constexpr std::array<const char*, 5> kLoadReasonNames = {"queue", "calls", "deadline", "wait", "share"};

// In the order of TailTreatment.
constexpr std::array<const char*, 3> kTreatmentNames = {"truncate", "solo", "refused"};

// In the order of Outcome.
constexpr std::array<FailureReason, 9> kFailureReasonOf = {FailureReason::kOther /* ok: none */,
                                                           FailureReason::kOther,
                                                           FailureReason::kOther,
                                                           FailureReason::kRejected,
                                                           FailureReason::kRejected,
                                                           FailureReason::kRejected,
                                                           FailureReason::kCanceled,
                                                           FailureReason::kRejected,
                                                           FailureReason::kBackend};

double Number(std::int64_t value) { return static_cast<double>(value); }

// Counts are whole numbers far below 2^53.
std::int64_t Whole(double value) { return static_cast<std::int64_t>(value); }
std::int64_t Whole(const prometheus::Counter& counter) { return Whole(counter.Value()); }

}  // namespace

void ModelTally::RequestServed(const ServedRequest& request) {
  MutexLock lock(mutex_);
  kept_.queue += request.queue;
  kept_.compute_input += request.compute_input;
  kept_.compute_infer += request.compute_infer;
  kept_.compute_output += request.compute_output;
  kept_.last_answer = std::max(kept_.last_answer, request.answered);
}

void ModelTally::RequestAnswered(Outcome outcome, Duration took) {
  MutexLock lock(mutex_);
  (outcome == Outcome::kOk ? kept_.succeeded : kept_.failed).time += took;
}

void ModelTally::BatchFinished(const BatchReport& report) {
  MutexLock lock(mutex_);
  ModelTotals::Batches& batches = kept_.by_rows[report.rows];
  ++batches.count;
  batches.compute_input += report.collate;
  batches.compute_infer += report.compute;
  batches.compute_output += report.scatter;
}

ModelTotals ModelTally::Kept() const {
  MutexLock lock(mutex_);
  return kept_;
}

ModelSeries::ModelSeries(const Families& families, ModelLabels labels, std::shared_ptr<ModelTally> tally)
    : families_(families),
      labels_(std::move(labels)),
      tally_(std::move(tally)),
      received_(families.received.At({labels_.model})),
      late_starts_(families.late_starts.At({labels_.model})),
      batch_rows_(families.batch_rows.At({labels_.model})),
      row_splits_(families.splits.At({labels_.model, "rows"})),
      memory_splits_(families.splits.At({labels_.model, "memory"})),
      memory_retries_(families.retries.At({labels_.model, "memory"})),
      error_retries_(families.retries.At({labels_.model, "error"})),
      wide_runs_(families.wide_runs.At({labels_.model})),
      useful_tokens_(families.useful_tokens.At({labels_.model})),
      padding_tokens_(families.padding_tokens.At({labels_.model})),
      queue_seconds_(families.queue_seconds.At({labels_.model})),
      compute_seconds_(families.compute_seconds.At({labels_.model})),
      request_seconds_(families.request_seconds.At({labels_.model})) {
  static_assert(kOutcomeNames.size() == kOutcomes);
  for (std::size_t i = 0; i < kOutcomes; ++i) {
    requests_.at(i) = &families.requests.At({labels_.model, kOutcomeNames.at(i)});
    rows_.at(i) = &families.rows.At({labels_.model, kOutcomeNames.at(i)});
  }
  static_assert(kLoadReasonNames.size() == kLoadReasons);
  for (std::size_t i = 0; i < kLoadReasons; ++i) {
    load_refusals_.at(i) = &families.load_refusals.At({labels_.model, kLoadReasonNames.at(i)});
  }
  static_assert(kTreatmentNames.size() == kTreatments);
  for (std::size_t i = 0; i < kTreatments; ++i) {
    tail_rows_.at(i) = &families.tail_rows.At({labels_.model, kTreatmentNames.at(i)});
  }
  for (const std::string& device : labels_.devices) {
    OnDevice on_device{device,
                       &families.out_of_memory.At({labels_.model, device}),
                       &families.underestimates.At({labels_.model, device}),
                       &families.estimate_ratio.At({labels_.model, device}),
                       {}};
    for (const std::int64_t bucket : labels_.buckets) {
      on_device.batches.emplace_back(bucket, &families.batches.At({labels_.model, device, std::to_string(bucket)}));
    }
    devices_.push_back(std::move(on_device));
  }
}

void ModelSeries::RequestAnswered(Outcome outcome, std::int64_t rows, Duration took) const {
  const auto index = static_cast<std::size_t>(outcome);
  requests_.at(index)->Increment();
  if (rows > 0) rows_.at(index)->Increment(Number(rows));
  request_seconds_.Observe(Seconds(took));
  tally_->RequestAnswered(outcome, took);
}

ModelTotals ModelSeries::Totals() const {
  ModelTotals totals = tally_->Kept();
  const auto batch_rows = batch_rows_.Collect().histogram;
  totals.rows = Whole(batch_rows.sample_sum);
  totals.batches = static_cast<std::int64_t>(batch_rows.sample_count);
  totals.succeeded.count = Whole(*requests_.front());
  static_assert(kFailureReasonOf.size() == kOutcomes && Outcome::kOk == Outcome{});
  for (std::size_t i = 1; i < kOutcomes; ++i) {
    const std::int64_t count = Whole(*requests_.at(i));
    totals.failed.count += count;
    totals.failures.at(static_cast<std::size_t>(kFailureReasonOf.at(i))) += count;
  }
  return totals;
}

std::int64_t ModelSeries::pending() const {
  // What was answered is read first: it was received before that.
  std::int64_t answered = 0;
  for (const prometheus::Counter* const outcome : requests_) answered += Whole(*outcome);
  return Whole(received_) - answered;
}

std::optional<double> ModelSeries::useful_share() const {
  const double useful = useful_tokens_.Value();
  const double computed = useful + padding_tokens_.Value();
  if (computed <= 0) return std::nullopt;
  return useful / computed;
}

void ModelSeries::RefusedForLoad(LoadReason reason) const { load_refusals_.at(static_cast<std::size_t>(reason))->Increment(); }

void ModelSeries::TailRows(TailTreatment treatment, std::int64_t rows) const {
  tail_rows_.at(static_cast<std::size_t>(treatment))->Increment(Number(rows));
}

void ModelSeries::BatchFinished(const BatchReport& report) const {
  const OnDevice* const on_device = Find(report.device);
  BatchesOf(on_device, report.bucket).Increment();
  batch_rows_.Observe(Number(report.rows));
  if (report.late_rows > 0) late_starts_.Increment(Number(report.late_rows));
  if (report.limited_by == BatchLimit::kRows) row_splits_.Increment();
  if (report.limited_by == BatchLimit::kMemory) memory_splits_.Increment();
  if (report.extra_threads > 0) wide_runs_.Increment();
  useful_tokens_.Increment(Number(report.useful_tokens));
  padding_tokens_.Increment(Number(report.padding_tokens));
  compute_seconds_.Observe(Seconds(report.compute));
  tally_->BatchFinished(report);
  for (const Duration wait : report.waits) queue_seconds_.Observe(Seconds(wait));
  if (report.under_estimated) {
    (on_device != nullptr ? *on_device->underestimates : families_.underestimates.At({labels_.model, kOtherLabel})).Increment();
  }
  if (report.actual && report.expected_tensors.count > 0) {
    prometheus::Histogram& ratio =
        on_device != nullptr ? *on_device->estimate_ratio : families_.estimate_ratio.At({labels_.model, kOtherLabel});
    ratio.Observe(Number(report.actual->count) / Number(report.expected_tensors.count));
  }
}

void ModelSeries::OutOfMemory(const std::string& device) const {
  const OnDevice* const on_device = Find(device);
  prometheus::Counter& counter =
      on_device != nullptr ? *on_device->out_of_memory : families_.out_of_memory.At({labels_.model, kOtherLabel});
  counter.Increment();
}

void ModelSeries::BatchRetried(RetryReason reason) const {
  (reason == RetryReason::kOutOfMemory ? memory_retries_ : error_retries_).Increment();
}

const ModelSeries::OnDevice* ModelSeries::Find(const std::string& device) const {
  const auto found = std::find_if(devices_.begin(), devices_.end(), [&](const OnDevice& known) { return known.device == device; });
  return found == devices_.end() ? nullptr : &*found;
}

prometheus::Counter& ModelSeries::BatchesOf(const OnDevice* on_device, std::int64_t bucket) const {
  if (on_device != nullptr) {
    for (const auto& [known, counter] : on_device->batches) {
      if (known == bucket) return *counter;
    }
  }
  return families_.batches.At({labels_.model, on_device != nullptr ? on_device->device : kOtherLabel, kOtherLabel});
}

}  // namespace headroom
