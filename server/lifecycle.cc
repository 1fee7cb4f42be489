#include "server/lifecycle.h"

#include <absl/strings/str_cat.h>

#include <utility>

namespace headroom {
namespace {

std::string ReasonOf(Lifecycle::Phase phase, const std::string& lost_why) {
  switch (phase) {
    case Lifecycle::Phase::kStarting: return "the server is starting: models are being loaded, warmed and calibrated";
    case Lifecycle::Phase::kServing: return "";
    case Lifecycle::Phase::kSettling: return "the server is about to end: it serves who still comes, and others should be called";
    case Lifecycle::Phase::kDraining: return "the server is draining: it answers what it has admitted and then ends";
    case Lifecycle::Phase::kDeviceLost: return absl::StrCat("the device was lost", lost_why.empty() ? "" : ": ", lost_why);
  }
  return "";
}

}  // namespace

Admittance::Admittance(Admittance&& other) noexcept : lifecycle_(std::exchange(other.lifecycle_, nullptr)) {}

Admittance& Admittance::operator=(Admittance&& other) noexcept {
  std::swap(lifecycle_, other.lifecycle_);
  return *this;
}

Admittance::~Admittance() {
  if (lifecycle_ != nullptr) lifecycle_->Leave();
}

Lifecycle::Phase Lifecycle::phase() const {
  MutexLock lock(mutex_);
  return phase_;
}

bool Lifecycle::serving() const {
  MutexLock lock(mutex_);
  return phase_ == Phase::kServing && strain_.empty();
}

std::string Lifecycle::NotReadyReason() const {
  MutexLock lock(mutex_);
  return phase_ == Phase::kServing ? strain_ : ReasonOf(phase_, lost_why_);
}

absl::StatusOr<Admittance> Lifecycle::Admit() {
  MutexLock lock(mutex_);
  // A client is not told why a device was lost.
  if (phase_ != Phase::kServing && phase_ != Phase::kSettling) return absl::UnavailableError(ReasonOf(phase_, ""));
  ++inside_;
  return Admittance(*this);
}

void Lifecycle::Leave() {
  MutexLock lock(mutex_);
  --inside_;
  changed_.NotifyAll();
}

void Lifecycle::StartServing() { Change(Phase::kServing, ""); }

void Lifecycle::Stop() {
  // Nobody calls a server that does not serve yet: there is nothing to settle.
  const bool settles = settle_ > Duration::zero() && phase() != Phase::kStarting;
  Change(settles ? Phase::kSettling : Phase::kDraining, "");
}

void Lifecycle::LoseDevice(const std::string& why) { Change(Phase::kDeviceLost, why); }

void Lifecycle::Tell(const std::function<void()>& change) {
  const bool was = serving();
  change();
  const bool is = serving();
  if (listener_ && is != was) listener_(is);
}

void Lifecycle::SetStrain(const std::string& why) {
  MutexLock in_order(listening_);
  Tell([&] {
    MutexLock lock(mutex_);
    strain_ = why;
  });
}

void Lifecycle::Change(Phase phase, const std::string& why) {
  MutexLock in_order(listening_);
  Tell([&] {
    MutexLock lock(mutex_);
    // Phases only advance: a drain is not undone, and a lost device overrides everything.
    if (phase <= phase_) return;
    phase_ = phase;
    lost_why_ = why;
    changed_.NotifyAll();
  });
  if (phase > Phase::kServing) stop_.request_stop();
}

Lifecycle::Phase Lifecycle::WaitForEnd() {
  {
    MutexLock lock(mutex_);
    while (phase_ < Phase::kSettling) changed_.Wait(mutex_);
    const TimePoint settled = After(clock_.Now(), settle_);
    while (phase_ == Phase::kSettling && clock_.Now() < settled) clock_.WaitUntil(mutex_, changed_, settled);
  }
  Change(Phase::kDraining, "");
  return phase();
}

bool Lifecycle::WaitUntilIdle(TimePoint time) {
  MutexLock lock(mutex_);
  const bool was_lost = phase_ == Phase::kDeviceLost;
  while (inside_ > 0) {
    if (!was_lost && phase_ == Phase::kDeviceLost) return false;
    if (!clock_.WaitUntil(mutex_, changed_, time) && inside_ > 0 && clock_.Now() >= time) return false;
  }
  return true;
}

}  // namespace headroom
