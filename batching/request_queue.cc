#include "batching/request_queue.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

namespace headroom {
namespace {

PendingRow ToPending(const QueuedRow& queued) {
  const Request& request = *queued.request;
  return {queued.row().placement, request.priority(), request.arrived(), request.deadline(), request.gone()};
}

// Takes rows out of a queue by index, and what is left in one sweep.
class Extraction {
 public:
  explicit Extraction(std::vector<QueuedRow>& rows) : rows_(rows), taken_(rows.size(), false) {}

  QueuedRow Take(std::size_t index) {
    taken_[index] = true;
    return std::move(rows_[index]);
  }
  std::vector<QueuedRow> TakeAll(const std::vector<std::size_t>& indices) {
    std::vector<QueuedRow> taken;
    taken.reserve(indices.size());
    for (const std::size_t index : indices) taken.push_back(Take(index));
    return taken;
  }
  ~Extraction() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (taken_[i]) continue;
      if (kept != i) rows_[kept] = std::move(rows_[i]);
      ++kept;
    }
    rows_.resize(kept);
  }
  Extraction(const Extraction&) = delete;
  Extraction& operator=(const Extraction&) = delete;

 private:
  std::vector<QueuedRow>& rows_;
  std::vector<bool> taken_;
};

}  // namespace

absl::Status RequestQueue::Enqueue(const std::shared_ptr<Request>& request) {
  const auto count = static_cast<std::int64_t>(request->rows().size());
  MutexLock lock(mutex_);
  if (closed_) return absl::UnavailableError("the model is being taken out of service");
  const auto waiting = static_cast<std::int64_t>(rows_.size());
  if (count > max_rows_ - waiting) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the queue is full: ", count, " rows came, ", waiting, " wait, ", max_rows_, " may"));
  }
  // So that none is queued where memory runs out.
  if (rows_.capacity() < rows_.size() + request->rows().size()) rows_.reserve(2 * (rows_.size() + request->rows().size()));
  for (std::size_t i = 0; i < request->rows().size(); ++i) rows_.push_back({request, i});
  return absl::OkStatus();
}

absl::Status RequestQueue::PutBack(QueuedRow row) {
  MutexLock lock(mutex_);
  if (closed_) return absl::UnavailableError("the model is being taken out of service");
  rows_.push_back(std::move(row));
  return absl::OkStatus();
}

Claim RequestQueue::ClaimBatch(const BucketLadder& ladder, const PlanLimits& limits, const MemoryEstimator& estimator,
                               TimePoint now) {
  Claim claim;
  MutexLock lock(mutex_);
  std::vector<PendingRow> pending;
  pending.reserve(rows_.size());
  for (const QueuedRow& row : rows_) pending.push_back(ToPending(row));
  Plan plan = PlanBatches(pending, ladder, limits, estimator, now);
  {
    Extraction extraction(rows_);
    claim.gone = extraction.TakeAll(plan.gone);
    claim.expired = extraction.TakeAll(plan.expired);
    for (const RefusedRow& refused : plan.refused) {
      claim.refused.push_back(extraction.Take(refused.row));
      claim.refused_need.push_back(refused.needs);
    }
    if (!plan.batches.empty()) {
      claim.batch = std::move(plan.batches.front());
      claim.rows = extraction.TakeAll(claim.batch.rows);
    }
  }
  claim.next_wake = plan.next_wake;
  claim.holds_back = plan.holds_back;
  claim.rows_wait = !rows_.empty();
  return claim;
}

Claim RequestQueue::ClaimDead(TimePoint now) {
  Claim claim;
  MutexLock lock(mutex_);
  {
    Extraction extraction(rows_);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Request& request = *rows_[i].request;
      if (request.deadline() <= now) {
        claim.expired.push_back(extraction.Take(i));
      } else if (request.gone()) {
        claim.gone.push_back(extraction.Take(i));
      } else {
        claim.next_wake = std::min(claim.next_wake, request.deadline());
      }
    }
  }
  claim.rows_wait = !rows_.empty();
  return claim;
}

std::vector<QueuedRow> RequestQueue::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  return std::exchange(rows_, {});
}

std::optional<RowUrgency> RequestQueue::most_urgent() const {
  MutexLock lock(mutex_);
  std::optional<RowUrgency> first;
  for (const QueuedRow& row : rows_) {
    const RowUrgency urgency{row.request->priority(), row.request->arrived()};
    if (!first || urgency < *first) first = urgency;
  }
  return first;
}

std::int64_t RequestQueue::rows_waiting() const {
  MutexLock lock(mutex_);
  return static_cast<std::int64_t>(rows_.size());
}

std::optional<TimePoint> RequestQueue::oldest_arrival() const {
  MutexLock lock(mutex_);
  // A row that was put back stands behind later ones.
  std::optional<TimePoint> oldest;
  for (const QueuedRow& row : rows_) oldest = std::min(oldest.value_or(kForever), row.request->arrived());
  return oldest;
}

}  // namespace headroom
