// Which waiting rows run together, in which order, at what padded length. Pure: no thread, clock, tensor or metric is known here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "batching/batch_observer.h"
#include "batching/bucket_ladder.h"
#include "memory/memory_estimator.h"

namespace headroom {

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
};

struct PlannedBatch {
  std::vector<std::size_t> rows;  // indices of pending rows, ascending in length
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

// `estimator` says what to reserve for a shape, margin included; it knows every padded length of `ladder`.
//
// Rows of a bucket are sorted by length, so that a short row is not padded to a long one's length, and cut into batches: one
// closes before the row that would pass `max_rows` or `available`. The batch that holds the most urgent row (priority, then age)
// comes first, so sorting starves nobody; with `oldest_first` priorities do not count. A row that would fit if the running batches
// ended, and has waited beyond `max_overtaking`, keeps all less urgent batches waiting until they have.
//
// Example: lengths 20, 500, 30 with buckets 32 and 512 → batches {20, 30} at 32 and {500} at 512, the one with the oldest row
// first.
Plan PlanBatches(std::span<const PendingRow> rows, const BucketLadder& ladder, const PlanLimits& limits,
                 const MemoryEstimator& estimator, TimePoint now);

}  // namespace headroom
