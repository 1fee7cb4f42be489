// Starting, serving, draining, lost: which requests may come in, and when the last has gone.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <stop_token>
#include <string>

#include "base/clock.h"
#include "base/sync.h"

namespace headroom {

class Lifecycle;

// A request's right to be in the server; counts itself out when it is destroyed. Movable.
class Admittance {
 public:
  Admittance() = default;
  Admittance(Admittance&& other) noexcept;
  Admittance& operator=(Admittance&& other) noexcept;
  ~Admittance();

 private:
  friend class Lifecycle;
  explicit Admittance(Lifecycle& lifecycle) : lifecycle_(&lifecycle) {}
  Lifecycle* lifecycle_ = nullptr;
};

// Thread-safe.
class Lifecycle {
 public:
  enum class Phase { kStarting, kServing, kDraining, kDeviceLost };

  // `clock` outlives this object.
  explicit Lifecycle(Clock& clock) : clock_(clock) {}

  Phase phase() const EXCLUDES(mutex_);
  bool serving() const { return phase() == Phase::kServing; }
  // Why it is not ready, for a person; empty while it serves.
  std::string NotReadyReason() const EXCLUDES(mutex_);

  // Called with every change of serving(), true or false, in order, with no lock that a caller needs.
  void OnServingChanged(std::function<void(bool)> listener) EXCLUDES(listening_) {
    MutexLock lock(listening_);
    listener_ = std::move(listener);
  }

  // Lets a request in. UNAVAILABLE, saying why, in every phase but kServing.
  absl::StatusOr<Admittance> Admit() EXCLUDES(mutex_);

  // From kStarting only; does nothing where a stop was asked for meanwhile.
  void StartServing() EXCLUDES(mutex_);
  // From a signal: refuses newcomers from now on. A second call changes nothing.
  void Stop() EXCLUDES(mutex_);
  // The device will not run anything again.
  void LoseDevice(const std::string& why) EXCLUDES(mutex_);

  // Told by Stop and LoseDevice: long work at the start should end early.
  std::stop_token stop_token() const { return stop_.get_token(); }
  // Waits until Stop or LoseDevice.
  Phase WaitForEnd() EXCLUDES(mutex_);
  // Waits until every request that was let in has gone, or until `time`; false where some have not.
  bool WaitUntilIdle(TimePoint time) EXCLUDES(mutex_);

 private:
  friend class Admittance;
  void Leave() EXCLUDES(mutex_);
  void Change(Phase phase, const std::string& why) EXCLUDES(listening_, mutex_);

  Clock& clock_;
  std::stop_source stop_;

  Mutex listening_;  // held while the listener is called, which keeps its calls in order
  std::function<void(bool)> listener_ GUARDED_BY(listening_);
  mutable Mutex mutex_;
  CondVar changed_;
  Phase phase_ GUARDED_BY(mutex_) = Phase::kStarting;
  std::string lost_why_ GUARDED_BY(mutex_);
  std::int64_t inside_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headroom
