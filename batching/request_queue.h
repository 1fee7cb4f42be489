// The rows of one model that wait, bounded; a worker claims a batch of them in one step.
#pragma once

#include <absl/status/status.h>

#include <memory>
#include <optional>
#include <vector>

#include "base/sync.h"
#include "batching/batch_planner.h"
#include "batching/queue_load.h"
#include "batching/request.h"

namespace headroom {

// A row by itself: its request and its index in it.
struct QueuedRow {
  std::shared_ptr<Request> request;
  std::size_t index = 0;
  std::int64_t retries = 0;  // runs of it that have failed

  const Request::Row& row() const { return request->rows()[index]; }
};

// What a worker took from a queue. Whoever claims finishes every row in it.
struct Claim {
  std::vector<QueuedRow> rows;  // of the batch, in the batch's order; empty where there is none to run now
  PlannedBatch batch;           // its row indices mean nothing any more
  std::vector<QueuedRow> gone;
  std::vector<QueuedRow> expired;
  std::vector<QueuedRow> refused;
  std::vector<Bytes> refused_need;  // for each of `refused`
  TimePoint next_wake = kForever;
  bool holds_back = false;  // see Plan
  bool rows_wait = false;   // rows are left, for memory, company or the next worker
};

// Answers every row of `claim` whose request is gone or whose time is up.
void FinishDeadRows(const Claim& claim);

// Of what waits for one model.
struct QueueBounds {
  std::int64_t max_rows = 0;
  Bytes max_bytes{0};             // of their inputs; 0: no bound
  QueueTotals* totals = nullptr;  // of all queues together; null: no bound. Outlives the queue
};

// What waits, as one who comes sees it.
struct LoadSeen {
  Load total;
  Load ahead;  // as urgent as the newcomer, or more
  Load own;    // of the same caller
};

// Thread-safe. Holds its lock while planning (below a millisecond for a thousand rows), never while finishing a row.
class RequestQueue {
 public:
  explicit RequestQueue(QueueBounds bounds) : bounds_(bounds) {}

  // However many batches of more urgent rows pass by the oldest row, the next one after so many is the oldest row's.
  static constexpr int kMostPassedBy = 7;

  // Takes all rows of `request` or none. RESOURCE_EXHAUSTED where they do not fit beside those that wait; UNAVAILABLE once closed.
  absl::Status Enqueue(const std::shared_ptr<Request>& request) EXCLUDES(mutex_);

  // A claimed row waits again, with the urgency that it had; beyond the bound, since it was admitted before. UNAVAILABLE once
  // closed: then it is still the caller's to finish.
  absl::Status PutBack(QueuedRow row) EXCLUDES(mutex_);

  // Plans over all waiting rows and takes out the most urgent batch, and every row that will never run.
  Claim ClaimBatch(const BucketLadder& ladder, PlanLimits limits, const MemoryEstimator& estimator, const BatchTimes& times,
                   TimePoint now) EXCLUDES(mutex_);

  // Takes out only the rows that will never run: whose time is up, or whose request is gone. `next_wake` is the next deadline.
  Claim ClaimDead(TimePoint now) EXCLUDES(mutex_);

  // Refuses newcomers from now on and takes out every row that waits.
  std::vector<QueuedRow> Close() EXCLUDES(mutex_);

  std::optional<RowUrgency> most_urgent() const EXCLUDES(mutex_);
  std::int64_t rows_waiting() const EXCLUDES(mutex_);
  Load load() const EXCLUDES(mutex_);
  LoadSeen LoadSeenBy(std::int64_t priority, CallerId caller) const EXCLUDES(mutex_);
  // When the oldest row came; none where none waits.
  std::optional<TimePoint> oldest_arrival() const EXCLUDES(mutex_);

  // Whether so many rows of so many bytes would find room now: RESOURCE_EXHAUSTED saying why not. Enqueue tells of a closed queue.
  absl::Status CheckRoom(std::int64_t rows, Bytes bytes) const EXCLUDES(mutex_);
  const QueueBounds& bounds() const { return bounds_; }

 private:
  // Takes rows out, and what they weigh off the loads.
  class Extraction;

  absl::Status CheckRoomLocked(std::int64_t rows, Bytes bytes) const REQUIRES(mutex_);
  std::optional<std::size_t> OldestRow() const REQUIRES(mutex_);

  const QueueBounds bounds_;

  mutable Mutex mutex_;
  std::vector<QueuedRow> rows_ GUARDED_BY(mutex_);  // in the order of arrival
  QueueLoad load_ GUARDED_BY(mutex_);               // of rows_
  int passed_by_ GUARDED_BY(mutex_) = 0;            // batches in a row without the row that was the oldest
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace headroom
