// Starting, serving, settling, draining, lost: which requests may come in, what is said of readiness, and when the last has gone.
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

// Two questions have two answers: whether a request that comes is let in (Admit), and whether more should be sent (serving, which
// is what health, /readyz and ServerReady say). They differ while the server settles, and while it is strained.
//
// Thread-safe.
class Lifecycle {
 public:
  enum class Phase {
    kStarting,
    kServing,
    kSettling,  // it is to end: says that it is not ready, and lets in whoever has not heard of it yet
    kDraining,  // lets nobody in, and answers those who are inside
    kDeviceLost,
  };

  // `clock` outlives this object. `settle`: how long kSettling lasts; 0: a stop drains at once.
  explicit Lifecycle(Clock& clock, Duration settle = Duration::zero()) : clock_(clock), settle_(settle) {}

  Phase phase() const EXCLUDES(mutex_);
  // Whether it should be sent requests: kServing, and not strained.
  bool serving() const EXCLUDES(mutex_);
  // Why not, for a person; empty where it should.
  std::string NotReadyReason() const EXCLUDES(mutex_);

  // Called with every change of serving(), true or false, in order, with no lock that a caller needs.
  void OnServingChanged(std::function<void(bool)> listener) EXCLUDES(listening_) {
    MutexLock lock(listening_);
    listener_ = std::move(listener);
  }

  // Lets a request in. UNAVAILABLE, saying why, in every phase but kServing and kSettling.
  absl::StatusOr<Admittance> Admit() EXCLUDES(mutex_);

  // From kStarting only; does nothing where a stop was asked for meanwhile.
  void StartServing() EXCLUDES(mutex_);
  // Why others should be sent requests for a while, for a person; empty: no reason any more. Requests are let in all the same.
  void SetStrain(const std::string& why) EXCLUDES(mutex_);
  // From a signal: not ready from now on; settles, or, where there is nothing to settle, drains. A second call changes nothing.
  void Stop() EXCLUDES(mutex_);
  // The device will not run anything again.
  void LoseDevice(const std::string& why) EXCLUDES(mutex_);

  // Told by Stop and LoseDevice: long work at the start should end early.
  std::stop_token stop_token() const { return stop_.get_token(); }
  // Waits until Stop or LoseDevice, and then while it settles: returns in kDraining or kDeviceLost. For one thread.
  Phase WaitForEnd() EXCLUDES(mutex_);
  // Waits until every request that was let in has gone, or until `time`, or until the device is lost meanwhile; false where some
  // have not gone.
  bool WaitUntilIdle(TimePoint time) EXCLUDES(mutex_);

 private:
  friend class Admittance;
  void Leave() EXCLUDES(mutex_);
  void Change(Phase phase, const std::string& why) EXCLUDES(listening_, mutex_);
  // Does `change`, and tells the listener where serving() is no longer what it was.
  void Tell(const std::function<void()>& change) REQUIRES(listening_) EXCLUDES(mutex_);

  Clock& clock_;
  const Duration settle_;
  std::stop_source stop_;

  Mutex listening_;  // held while the listener is called, which keeps its calls in order
  std::function<void(bool)> listener_ GUARDED_BY(listening_);
  mutable Mutex mutex_;
  CondVar changed_;
  Phase phase_ GUARDED_BY(mutex_) = Phase::kStarting;
  std::string lost_why_ GUARDED_BY(mutex_);
  std::string strain_ GUARDED_BY(mutex_);
  std::int64_t inside_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headroom
