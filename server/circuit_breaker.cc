#include "server/circuit_breaker.h"

#include <absl/strings/escaping.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace headroom {

BreakerPass::BreakerPass(BreakerPass&& other) noexcept
    : breaker_(std::exchange(other.breaker_, nullptr)), caller_(std::move(other.caller_)), trial_(other.trial_) {}

BreakerPass& BreakerPass::operator=(BreakerPass&& other) noexcept {
  if (this != &other) {
    if (breaker_ != nullptr && trial_) breaker_->EndTrial(caller_);
    breaker_ = std::exchange(other.breaker_, nullptr);
    caller_ = std::move(other.caller_);
    trial_ = other.trial_;
  }
  return *this;
}

BreakerPass::~BreakerPass() {
  if (breaker_ != nullptr && trial_) breaker_->EndTrial(caller_);
}

void BreakerPass::Judge(bool abnormal) {
  if (CircuitBreaker* const breaker = std::exchange(breaker_, nullptr)) breaker->Judge(caller_, trial_, abnormal);
}

std::variant<BreakerPass, Duration> CircuitBreaker::Ask(std::string_view caller) {
  if (caller.empty() || options_.caller_key.empty()) return BreakerPass();
  caller = caller.substr(0, kCallerBytes);
  const TimePoint now = clock_.Now();
  MutexLock lock(mutex_);
  Caller& asking = Seen(caller);
  if (!asking.open) return BreakerPass(*this, asking.name, /*trial=*/false);
  if (now >= asking.refused_until && !asking.on_trial) {
    asking.on_trial = true;
    return BreakerPass(*this, asking.name, /*trial=*/true);
  }
  ++refusals_;
  // While another is on trial, its end is not known; a tenth of the cool-down is soon enough to ask again.
  return std::max(asking.refused_until - now, cool_down_ / 10);
}

void CircuitBreaker::Judge(const std::string& caller, bool trial, bool abnormal) {
  const TimePoint now = clock_.Now();
  bool opened = false;
  {
    MutexLock lock(mutex_);
    Caller* const judged = Find(caller);
    if (judged == nullptr) return;  // forgotten meanwhile
    if (trial) judged->on_trial = false;
    if (judged->open && !trial) return;  // let through before it was opened
    if (trial && !abnormal) {
      judged->open = false;
      judged->parts = {};
      return;
    }
    const std::int64_t number = PartAt(now);
    Part& part = judged->parts.at(static_cast<std::size_t>(number % kParts));
    if (part.number != number) part = {number, 0, 0};
    ++part.judged;
    part.abnormal += abnormal ? 1 : 0;
    opened = trial || (abnormal && IsAbnormal(*judged, number));
    if (opened) {
      judged->open = true;
      judged->refused_until = After(now, cool_down_);
    }
  }
  if (!opened) return;
  if (const auto held_back = log_.Pass(now)) {
    Log(LogLevel::kWarning, "a caller's requests are mostly invalid: it is refused for a while",
        {{"caller", absl::CHexEscape(caller)}, {"seconds", Seconds(cool_down_)}, {"others_since_last_line", *held_back}});
  }
}

void CircuitBreaker::EndTrial(const std::string& caller) {
  MutexLock lock(mutex_);
  if (Caller* const tried = Find(caller)) tried->on_trial = false;
}

std::int64_t CircuitBreaker::open_callers() const {
  MutexLock lock(mutex_);
  return std::count_if(callers_.begin(), callers_.end(), [](const Caller& caller) { return caller.open; });
}

std::int64_t CircuitBreaker::refusals() const {
  MutexLock lock(mutex_);
  return refusals_;
}

CircuitBreaker::Caller& CircuitBreaker::Seen(std::string_view name) {
  if (const auto found = by_name_.find(name); found != by_name_.end()) {
    callers_.splice(callers_.begin(), callers_, found->second);
    return callers_.front();
  }
  if (callers_.size() >= static_cast<std::size_t>(options_.most_callers)) {
    by_name_.erase(callers_.back().name);
    callers_.pop_back();
  }
  Caller& added = callers_.emplace_front();
  added.name = name;
  by_name_.emplace(added.name, callers_.begin());
  return added;
}

CircuitBreaker::Caller* CircuitBreaker::Find(std::string_view name) {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &*found->second;
}

bool CircuitBreaker::IsAbnormal(const Caller& caller, std::int64_t part) const {
  std::int64_t judged = 0;
  std::int64_t abnormal = 0;
  for (const Part& counted : caller.parts) {
    if (counted.number <= part - kParts) continue;
    judged += counted.judged;
    abnormal += counted.abnormal;
  }
  return judged >= options_.least_requests &&
         static_cast<double>(abnormal) >= options_.abnormal_share * static_cast<double>(judged);
}

std::int64_t CircuitBreaker::PartAt(TimePoint now) const {
  return now.time_since_epoch() / std::max(window_ / kParts, Duration(1));
}

}  // namespace headroom
