#include "memory/memory_budget.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status_macros.h"

namespace headroom {
namespace {

// Rounded down: a budget is never a byte more than its share.
Bytes Share(Bytes bytes, double fraction) {
  return {static_cast<std::int64_t>(std::floor(static_cast<double>(std::max<std::int64_t>(0, bytes.count)) * fraction))};
}

}  // namespace

Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      bytes_(std::exchange(other.bytes_, Bytes{0})),
      budget_then_(other.budget_then_) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    Shrink({0});
    budget_ = std::exchange(other.budget_, nullptr);
    bytes_ = std::exchange(other.bytes_, Bytes{0});
    budget_then_ = other.budget_then_;
  }
  return *this;
}

Reservation::~Reservation() { Shrink({0}); }

void Reservation::Shrink(Bytes bytes) {
  if (budget_ == nullptr || bytes >= bytes_) return;
  budget_->GiveBack(bytes_ - bytes);
  bytes_ = bytes;
}

absl::Status MemoryBudget::MarkAtRest() { return Mark(/*keep_peak=*/false); }
absl::Status MemoryBudget::MarkAtRestAnew() { return Mark(/*keep_peak=*/true); }

absl::Status MemoryBudget::Mark(bool keep_peak) {
  ASSIGN_OR_RETURN(const DeviceMemory before, device_.Memory());
  device_.EmptyCache();
  device_.ResetPeak();
  ASSIGN_OR_RETURN(const DeviceMemory memory, device_.Memory());
  MutexLock lock(mutex_);
  earlier_peak_ = keep_peak ? std::max(earlier_peak_, before.peak_held - held_at_rest_) : Bytes{0};
  held_at_rest_ = memory.held;
  allocated_at_rest_ = memory.allocated;
  total_ = memory.total;
  limited_for_ = BudgetOf(memory);
  device_.LimitHeld(held_at_rest_ + limited_for_);
  return absl::OkStatus();
}

absl::StatusOr<Reservation> MemoryBudget::Reserve(Bytes bytes) {
  ASSIGN_OR_RETURN(const DeviceMemory memory, device_.Memory());
  MutexLock lock(mutex_);
  const Bytes budget = BudgetOf(memory);
  const Bytes available = std::max(Bytes{0}, budget - reserved_);
  if (bytes > available) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes.count, " bytes are needed, ", available.count, " of ", budget.count, " are available"));
  }
  reserved_ += bytes;
  return Reservation(*this, bytes, budget);
}

absl::StatusOr<Reservation> MemoryBudget::ReserveAvailable() {
  // Read outside the lock: a driver call may take long, and `base` does not change with our own batches.
  ASSIGN_OR_RETURN(const DeviceMemory memory, device_.Memory());
  MutexLock lock(mutex_);
  const Bytes budget = BudgetOf(memory);
  if (budget > limited_for_) {
    limited_for_ = budget;
    device_.LimitHeld(held_at_rest_ + limited_for_);
  }
  const Bytes available = std::max(Bytes{0}, budget - reserved_);
  reserved_ += available;
  return Reservation(*this, available, budget);
}

Bytes MemoryBudget::idle_budget() const {
  MutexLock lock(mutex_);
  return Share(total_ - allocated_at_rest_, fraction_);
}

absl::StatusOr<BudgetSnapshot> MemoryBudget::Snapshot() const {
  ASSIGN_OR_RETURN(const DeviceMemory memory, device_.Memory());
  MutexLock lock(mutex_);
  return BudgetSnapshot{memory.free, BudgetOf(memory), reserved_,
                        std::max({Bytes{0}, earlier_peak_, memory.peak_held - held_at_rest_})};
}

void MemoryBudget::GiveBack(Bytes bytes) {
  MutexLock lock(mutex_);
  reserved_ -= bytes;
}

Bytes MemoryBudget::BudgetOf(const DeviceMemory& memory) const {
  return Share(memory.free + memory.held - allocated_at_rest_ - memory.unusable, fraction_);
}

}  // namespace headroom
