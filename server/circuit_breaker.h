// Refuses callers whose requests are mostly wrong, for a while: cheap refusals instead of parsing what will be refused anyway.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "base/clock.h"
#include "base/rate_limit.h"
#include "base/sync.h"

namespace headroom {

struct BreakerOptions {
  // The request metadata that names a caller, lower case. Empty: no caller is ever refused. There is no default, as only who runs
  // the service knows which name its callers cannot make up.
  std::string caller_key;
  // A caller is refused when, of its requests within the window, so many at least have been judged and such a share of them was
  // abnormal (invalid or too long). Half: whoever is that often wrong is broken, not unlucky; 20: a few mistakes are no pattern.
  double abnormal_share = 0.5;
  int least_requests = 20;
  int window_seconds = 30;
  // How long it is then refused before one request is let through on trial: a deploy gone wrong is not over within a second, and a
  // caller that has been repaired should not wait for minutes.
  int cool_down_seconds = 10;
  // Callers that are remembered, the most recent ones: about 300 bytes each.
  int most_callers = 4096;
};

class CircuitBreaker;

// A request's leave to pass, and the duty to say how it went. Dropped without a word, it says that nothing is known, as of a
// request that found the queue full. Movable; not thread-safe.
class BreakerPass {
 public:
  BreakerPass() = default;
  BreakerPass(BreakerPass&& other) noexcept;
  BreakerPass& operator=(BreakerPass&& other) noexcept;
  ~BreakerPass();

  // The request was what a request should be, or it was not.
  void Judge(bool abnormal);

 private:
  friend class CircuitBreaker;
  BreakerPass(CircuitBreaker& breaker, std::string caller, bool trial)
      : breaker_(&breaker), caller_(std::move(caller)), trial_(trial) {}

  CircuitBreaker* breaker_ = nullptr;
  std::string caller_;
  bool trial_ = false;
};

// A caller is *closed* (let through) until it is found abnormal; then *open* (refused) for the cool-down; then *half-open*: one
// request at a time is let through on trial, and its judgement closes or opens it again. Thread-safe.
class CircuitBreaker {
 public:
  // Of a caller's name so many bytes count.
  static constexpr std::size_t kCallerBytes = 128;

  // `clock` outlives this object.
  CircuitBreaker(BreakerOptions options, Clock& clock)
      : options_(std::move(options)),
        window_(std::chrono::seconds(options_.window_seconds)),
        cool_down_(std::chrono::seconds(options_.cool_down_seconds)),
        clock_(clock) {}

  const std::string& caller_key() const { return options_.caller_key; }

  // A pass, or how long the caller is still refused. An empty `caller`, as of a request without the key, always passes.
  std::variant<BreakerPass, Duration> Ask(std::string_view caller) EXCLUDES(mutex_);

  std::int64_t open_callers() const EXCLUDES(mutex_);
  std::int64_t refusals() const EXCLUDES(mutex_);

 private:
  friend class BreakerPass;
  // The window in parts, so that it slides at a bounded cost.
  static constexpr std::int64_t kParts = 6;

  struct Part {
    std::int64_t number = -1;  // since the clock's epoch, in sixths of the window
    std::int32_t judged = 0;
    std::int32_t abnormal = 0;
  };
  struct Caller {
    std::string name;
    std::array<Part, kParts> parts;
    bool open = false;
    bool on_trial = false;  // half-open, and its one request is under way
    TimePoint refused_until{};
  };
  using Callers = std::list<Caller>;  // the most recently seen first

  void Judge(const std::string& caller, bool trial, bool abnormal) EXCLUDES(mutex_);
  void EndTrial(const std::string& caller) EXCLUDES(mutex_);
  Caller& Seen(std::string_view name) REQUIRES(mutex_);
  Caller* Find(std::string_view name) REQUIRES(mutex_);
  bool IsAbnormal(const Caller& caller, std::int64_t part) const REQUIRES(mutex_);
  std::int64_t PartAt(TimePoint now) const;

  const BreakerOptions options_;
  const Duration window_;
  const Duration cool_down_;
  Clock& clock_;
  RateLimit log_{std::chrono::seconds(10)};

  mutable Mutex mutex_;
  Callers callers_ GUARDED_BY(mutex_);
  std::unordered_map<std::string_view, Callers::iterator> by_name_ GUARDED_BY(mutex_);  // names are those of callers_
  std::int64_t refusals_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headroom
