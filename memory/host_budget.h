// What requests may take of the host's memory together, from the bytes of their messages to those of their replies, and the right
// to a part of it.
#pragma once

#include <absl/status/statusor.h>

#include <array>

#include "base/bytes.h"
#include "base/sync.h"

namespace headroom {

class HostBudget;

// What a request's bytes are for at a time.
enum class HostStage {
  kRequest,  // its message, while it is parsed and checked
  kQueue,    // its message, while its rows wait and run
  kStaging,  // batches that are being put together, and their outputs on the way back
  kReply,    // its outputs and the message made of them, from admission on
};
inline constexpr std::size_t kHostStages = 4;
// "request", "queue", "staging", "reply".
const char* NameOf(HostStage stage);

// The right to some bytes of a budget. Gives them back when it is destroyed. Not thread-safe; movable between threads.
class HostReservation {
 public:
  HostReservation() = default;
  HostReservation(HostReservation&& other) noexcept;
  HostReservation& operator=(HostReservation&& other) noexcept;
  ~HostReservation();

  Bytes bytes() const { return bytes_; }
  // Gives back all but `bytes`; a larger figure than what is held changes nothing.
  void Shrink(Bytes bytes);
  // The bytes are for something else from now on. Not for staging, nor from it.
  void MoveTo(HostStage stage);
  // A right of its own to `bytes` of these, which are no more than there are, for `stage`; not for staging.
  HostReservation Split(HostStage stage, Bytes bytes);

 private:
  friend class HostBudget;
  HostReservation(HostBudget& budget, HostStage stage, Bytes bytes) : budget_(&budget), stage_(stage), bytes_(bytes) {}

  HostBudget* budget_ = nullptr;
  HostStage stage_ = HostStage::kRequest;
  Bytes bytes_{0};
};

struct HostUsage {
  Bytes limit{0};
  std::array<Bytes, kHostStages> reserved{};  // by HostStage

  Bytes of(HostStage stage) const { return reserved.at(static_cast<std::size_t>(stage)); }
};

// Thread-safe.
//
//   available = limit − Σ reservations of requests, queue and replies − max(set aside, staging)
//
// Nobody waits for host memory: a request reserves all that it will ever need, its reply included, in one step when it comes, or is
// refused. So an admitted request cannot be stuck for it, in whatever order others finish. Staging comes and goes with batches of
// requests that are admitted already and must never be refused either: it is bounded by the workers, and set aside beforehand.
class HostBudget {
 public:
  HostBudget() = default;
  HostBudget(const HostBudget&) = delete;
  HostBudget& operator=(const HostBudget&) = delete;

  // Until it is called there is nothing to reserve. Called again, it changes what comes later; reservations stay.
  void Open(Bytes limit, Bytes set_aside_for_staging) EXCLUDES(mutex_);

  // All of `bytes`, or RESOURCE_EXHAUSTED with the figures. `stage` is not staging.
  absl::StatusOr<HostReservation> Reserve(HostStage stage, Bytes bytes) EXCLUDES(mutex_);
  // Whether Reserve would grant so much if nobody else held anything.
  bool CouldEverFit(Bytes bytes) const EXCLUDES(mutex_);

  // Out of what is set aside. Never refused: what goes beyond it is missing for newcomers.
  HostReservation ReserveStaging(Bytes bytes) EXCLUDES(mutex_);

  HostUsage usage() const EXCLUDES(mutex_);

 private:
  friend class HostReservation;
  Bytes& Of(HostStage stage) REQUIRES(mutex_) { return reserved_.at(static_cast<std::size_t>(stage)); }
  Bytes Available() const REQUIRES(mutex_);
  void Move(HostStage from, HostStage to, Bytes bytes) EXCLUDES(mutex_);
  void GiveBack(HostStage stage, Bytes bytes) EXCLUDES(mutex_);

  mutable Mutex mutex_;
  Bytes limit_ GUARDED_BY(mutex_){0};
  Bytes set_aside_ GUARDED_BY(mutex_){0};
  std::array<Bytes, kHostStages> reserved_ GUARDED_BY(mutex_){};
};

}  // namespace headroom
