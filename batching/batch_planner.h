// Which waiting rows run together, in which order, at what padded length. Pure: no thread, clock, tensor or metric is known here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "batching/batch_observer.h"
#include "batching/bucket_ladder.h"
#include "batching/latency_model.h"
#include "memory/memory_estimator.h"

namespace headroom {

// How urgent a row is: by its priority, then by when it is due.
struct RowUrgency {
  std::int64_t priority = 0;  // smaller is more urgent
  TimePoint due{};
  friend auto operator<=>(const RowUrgency&, const RowUrgency&) = default;
};

// A row is due when it must have started, and in any case a second after it came: one without a deadline, or with a far one, is
// passed by for no longer by rows that came later.
inline TimePoint DueTime(TimePoint arrived, TimePoint deadline) {
  return std::min(deadline, After(arrived, std::chrono::seconds(1)));
}

// A waiting row, as far as planning depends on it.
struct PendingRow {
  Placement placement;
  std::int64_t priority = 0;  // smaller is more urgent
  TimePoint arrived{};
  TimePoint deadline = kForever;  // to have started by
  bool gone = false;              // its request is cancelled or has failed already
};

struct PlanLimits {
  Bytes available{0};            // what one batch may take now
  Bytes budget{0};               // what one batch could take now if no other were running
  Bytes idle_budget{0};          // what one batch could take on the idle device
  bool refuse_too_large = true;  // a row over idle_budget is refused; false: it waits, another device may have room for it
  std::int64_t max_rows = 1;
  bool oldest_first = false;                 // whatever its priority
  Duration max_delay{0};                     // how long a row may wait for company
  Duration max_overtaking{0};                // how long less urgent rows may overtake one that waits for memory of running batches
  std::vector<std::int64_t> preferred_rows;  // a batch of so many rows does not wait for more
  int idle_workers = 1;                      // that have nothing to run, the one that is planned for included
};

struct PlannedBatch {
  std::vector<std::size_t> rows;  // indices of pending rows, ascending in padded length
  BatchShape shape;
  std::int64_t bucket = 0;
  Bytes needs{0};  // to be reserved for it
  BatchLimit limited_by = BatchLimit::kNone;
};

struct RefusedRow {
  std::size_t row = 0;
  Bytes needs{0};
};

// Every pending row is in exactly one batch or list, or waits.
struct Plan {
  std::vector<PlannedBatch> batches;  // most urgent first; each alone fits what is available, so that a worker takes the first
  std::vector<std::size_t> gone;
  std::vector<std::size_t> expired;
  std::vector<RefusedRow> refused;
  std::vector<std::size_t> waiting;  // for memory, or for company
  TimePoint next_wake = kForever;    // when a waiting row's deadline or its wait for company ends
  bool holds_back = false;           // a row has waited long enough for memory: nothing less urgent may start before it
};

// `estimator` says what to reserve for a shape, margin included, and `times` how long it runs; both know every padded length of
// `ladder`.
//
// Rows in the order of their padded lengths, the more urgent of the same length first, are cut where the batches take the least
// time (PartitionRows): a batch never has more than `max_rows`, nor needs more than is `available`. So a short row is padded to a
// longer one's length where that is quicker than a batch of its own. Rows that are to wait for company are not shared out among
// idle workers.
//
// The batch that holds the most urgent row comes first, so sorting starves nobody; with `oldest_first` priorities do not count. A
// row that would fit if the running batches ended, and has waited beyond `max_overtaking`, keeps all less urgent batches waiting
// until they have.
//
// Where more than kMostPlanned rows wait, only the most urgent so many are planned, and the others go on waiting: a plan takes
// no longer than its use.
//
// Example: lengths 20, 500, 30 with buckets 32 and 512, and time that grows with the tokens → batches {20, 30} at 32 and {500} at
// 512, the one with the oldest row first.
Plan PlanBatches(std::span<const PendingRow> rows, const BucketLadder& ladder, const PlanLimits& limits,
                 const MemoryEstimator& estimator, const BatchTimes& times, TimePoint now);

constexpr std::size_t kMostPlanned = 1024;

}  // namespace headroom
