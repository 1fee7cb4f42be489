#include "batching/request_queue.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status_macros.h"

namespace headroom {
namespace {

PendingRow ToPending(const QueuedRow& queued) {
  const Request& request = *queued.request;
  return {queued.row().placement, request.priority(), request.arrived(), request.deadline(), request.gone()};
}

}  // namespace

// By index; what is left closes up in one sweep.
class RequestQueue::Extraction {
 public:
  Extraction(std::vector<QueuedRow>& rows, QueueLoad& load, QueueTotals* totals)
      : rows_(rows), load_(load), totals_(totals), taken_(rows.size(), false) {}

  QueuedRow Take(std::size_t index) {
    taken_[index] = true;
    const QueuedRow& row = rows_[index];
    const Load weighs = row.request->LoadOf(row.index);
    load_.Remove(row.request->priority(), row.request->caller(), weighs);
    if (totals_ != nullptr) totals_->Remove(weighs.rows, weighs.bytes);
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
  QueueLoad& load_;
  QueueTotals* const totals_;
  std::vector<bool> taken_;
};

void FinishDeadRows(const Claim& claim) {
  for (const QueuedRow& row : claim.gone) row.request->RowDropped();
  for (const QueuedRow& row : claim.expired) {
    row.request->RowFailed(absl::DeadlineExceededError("the time to wait was up before the request could start"),
                           Outcome::kExpired);
  }
}

absl::Status RequestQueue::Enqueue(const std::shared_ptr<Request>& request) {
  Load weighs;
  for (std::size_t i = 0; i < request->rows().size(); ++i) weighs += request->LoadOf(i);
  MutexLock lock(mutex_);
  if (closed_) return absl::UnavailableError("the model is being taken out of service");
  RETURN_IF_ERROR(CheckRoomLocked(weighs.rows, weighs.bytes));
  // So that none is queued where memory runs out.
  if (rows_.capacity() < rows_.size() + request->rows().size()) rows_.reserve(2 * (rows_.size() + request->rows().size()));
  load_.Add(request->priority(), request->caller(), weighs);
  if (bounds_.totals != nullptr && !bounds_.totals->TryAdd(weighs.rows, weighs.bytes)) {
    load_.Remove(request->priority(), request->caller(), weighs);
    return absl::ResourceExhaustedError("the queues of all models together are full");
  }
  for (std::size_t i = 0; i < request->rows().size(); ++i) rows_.push_back({request, i});
  return absl::OkStatus();
}

absl::Status RequestQueue::CheckRoom(std::int64_t rows, Bytes bytes) const {
  MutexLock lock(mutex_);
  return CheckRoomLocked(rows, bytes);
}

absl::Status RequestQueue::CheckRoomLocked(std::int64_t rows, Bytes bytes) const {
  const Load& waiting = load_.total();
  if (rows > bounds_.max_rows - waiting.rows) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the queue is full: ", rows, " rows came, ", waiting.rows, " wait, ", bounds_.max_rows, " may"));
  }
  if (bounds_.max_bytes > Bytes{0} && bytes > bounds_.max_bytes - waiting.bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", bytes.count, " bytes came, ", waiting.bytes.count,
                                                     " wait, ", bounds_.max_bytes.count, " may"));
  }
  return absl::OkStatus();
}

absl::Status RequestQueue::PutBack(QueuedRow row) {
  MutexLock lock(mutex_);
  if (closed_) return absl::UnavailableError("the model is being taken out of service");
  rows_.reserve(rows_.size() + 1);
  const Load weighs = row.request->LoadOf(row.index);
  load_.Add(row.request->priority(), row.request->caller(), weighs);
  if (bounds_.totals != nullptr) bounds_.totals->Add(weighs.rows, weighs.bytes);
  rows_.push_back(std::move(row));
  return absl::OkStatus();
}

std::optional<std::size_t> RequestQueue::OldestRow() const {
  const auto first = std::min_element(rows_.begin(), rows_.end(), [](const QueuedRow& a, const QueuedRow& b) {
    return a.request->arrived() < b.request->arrived();
  });
  if (first == rows_.end()) return std::nullopt;
  return static_cast<std::size_t>(first - rows_.begin());
}

Claim RequestQueue::ClaimBatch(const BucketLadder& ladder, PlanLimits limits, const MemoryEstimator& estimator,
                               const BatchTimes& times, TimePoint now) {
  Claim claim;
  MutexLock lock(mutex_);
  const std::optional<std::size_t> oldest = OldestRow();
  limits.oldest_first = passed_by_ >= kMostPassedBy;
  std::vector<PendingRow> pending;
  pending.reserve(rows_.size());
  for (const QueuedRow& row : rows_) pending.push_back(ToPending(row));
  Plan plan = PlanBatches(pending, ladder, limits, estimator, times, now);
  {
    Extraction extraction(rows_, load_, bounds_.totals);
    claim.gone = extraction.TakeAll(plan.gone);
    claim.expired = extraction.TakeAll(plan.expired);
    for (const RefusedRow& refused : plan.refused) {
      claim.refused.push_back(extraction.Take(refused.row));
      claim.refused_need.push_back(refused.needs);
    }
    if (!plan.batches.empty()) {
      claim.batch = std::move(plan.batches.front());
      const auto& taken = claim.batch.rows;
      passed_by_ = std::find(taken.begin(), taken.end(), *oldest) == taken.end() ? passed_by_ + 1 : 0;
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
    Extraction extraction(rows_, load_, bounds_.totals);
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
  std::vector<std::size_t> all(rows_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return Extraction(rows_, load_, bounds_.totals).TakeAll(all);
}

std::optional<RowUrgency> RequestQueue::most_urgent() const {
  MutexLock lock(mutex_);
  std::optional<RowUrgency> first;
  for (const QueuedRow& row : rows_) {
    const RowUrgency urgency{row.request->priority(), DueTime(row.request->arrived(), row.request->deadline())};
    if (!first || urgency < *first) first = urgency;
  }
  return first;
}

std::int64_t RequestQueue::rows_waiting() const { return load().rows; }

Load RequestQueue::load() const {
  MutexLock lock(mutex_);
  return load_.total();
}

LoadSeen RequestQueue::LoadSeenBy(std::int64_t priority, CallerId caller) const {
  MutexLock lock(mutex_);
  return {load_.total(), load_.UpTo(priority), load_.Of(caller)};
}

std::optional<TimePoint> RequestQueue::oldest_arrival() const {
  MutexLock lock(mutex_);
  const std::optional<std::size_t> oldest = OldestRow();
  if (!oldest) return std::nullopt;
  return rows_[*oldest].request->arrived();
}

}  // namespace headroom
