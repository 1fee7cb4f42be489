// What batches may hold together on one device, and the right to a part of it.
#pragma once

#include <absl/status/statusor.h>

#include "base/bytes.h"
#include "base/sync.h"
#include "runtime/device.h"

namespace headroom {

class MemoryBudget;

// The right to some bytes of a budget. Gives them back when it is destroyed. Not thread-safe; movable between threads.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  Bytes bytes() const { return bytes_; }
  // The whole budget when it was made: what could have been reserved if nobody else had held anything.
  Bytes budget() const { return budget_then_; }
  // Gives back all but `bytes`; a larger figure than what is held changes nothing.
  void Shrink(Bytes bytes);

 private:
  friend class MemoryBudget;
  Reservation(MemoryBudget& budget, Bytes bytes, Bytes budget_then) : budget_(&budget), bytes_(bytes), budget_then_(budget_then) {}

  MemoryBudget* budget_ = nullptr;
  Bytes bytes_{0};
  Bytes budget_then_{0};
};

struct BudgetSnapshot {
  Bytes free{0};      // what the driver says is free
  Bytes budget{0};    // fraction × base: what batches may hold together now
  Bytes reserved{0};  // what running batches hold
  Bytes peak{0};      // the most that batches have really held at once since MarkAtRest
};

// Thread-safe.
//
//   base      = driver_free + held − allocated_at_rest − unusable   read anew at each reservation
//   available = fraction × base − Σ reservations
//
// `base` counts running batches once: what they hold has left `driver_free` and is part of `held`. What a neighbour takes or
// frees shows at the next reservation. The figures are snapshots: fragmentation may leave less for one large tensor.
//
// The device's hard limit, held_at_rest + budget, is raised when the budget grows beyond what it was made for, as when a neighbour
// leaves; it is never raised by what our own cache holds, and never lowered: what a neighbour takes is the driver's to refuse.
class MemoryBudget {
 public:
  // `device` outlives this object; 0 < fraction ≤ 1.
  MemoryBudget(Device& device, double fraction) : device_(device), fraction_(fraction) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Takes what is held now, when no batch runs, as the memory at rest, starts the peak anew, and sets the device's hard limit to
  // memory at rest + budget. INTERNAL where the device does not tell its memory.
  absl::Status MarkAtRest() EXCLUDES(mutex_);

  // The same while the device serves: the peak is kept. To be called when no batch runs; reservations may stand.
  absl::Status MarkAtRestAnew() EXCLUDES(mutex_);

  // Reserves exactly `bytes`, or nothing: RESOURCE_EXHAUSTED where less is available now. INTERNAL where the device does not tell
  // its memory.
  absl::StatusOr<Reservation> Reserve(Bytes bytes) EXCLUDES(mutex_);

  // Reserves, in one step, all that is available now; possibly nothing. INTERNAL where the device does not tell its memory.
  absl::StatusOr<Reservation> ReserveAvailable() EXCLUDES(mutex_);

  // fraction × (total − at rest): what one batch could have on the idle device, with no neighbour on it.
  Bytes idle_budget() const EXCLUDES(mutex_);

  absl::StatusOr<BudgetSnapshot> Snapshot() const EXCLUDES(mutex_);

  // What running batches hold; 0 at rest. Asks the device nothing.
  Bytes reserved() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return reserved_;
  }

 private:
  friend class Reservation;
  void GiveBack(Bytes bytes) EXCLUDES(mutex_);
  absl::Status Mark(bool keep_peak) EXCLUDES(mutex_);
  Bytes BudgetOf(const DeviceMemory& memory) const REQUIRES(mutex_);

  // Constant after construction.
  Device& device_;
  const double fraction_;

  mutable Mutex mutex_;
  Bytes held_at_rest_ GUARDED_BY(mutex_){0};
  Bytes allocated_at_rest_ GUARDED_BY(mutex_){0};
  Bytes limited_for_ GUARDED_BY(mutex_){0};  // the budget that the hard limit allows for
  Bytes total_ GUARDED_BY(mutex_){0};
  Bytes reserved_ GUARDED_BY(mutex_){0};
  Bytes earlier_peak_ GUARDED_BY(mutex_){0};  // before memory at rest was last marked anew
};

}  // namespace headroom
