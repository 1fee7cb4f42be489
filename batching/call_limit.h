// How many calls of a model may be inside at once, running and waiting.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

namespace headroom {

class CallLimit;

// A call's place; gives itself back when it is destroyed. Movable.
class CallPlace {
 public:
  CallPlace() = default;
  CallPlace(CallPlace&& other) noexcept : limit_(std::exchange(other.limit_, nullptr)) {}
  CallPlace& operator=(CallPlace&& other) noexcept {
    std::swap(limit_, other.limit_);
    return *this;
  }
  ~CallPlace();

 private:
  friend class CallLimit;
  explicit CallPlace(CallLimit& limit) : limit_(&limit) {}
  CallLimit* limit_ = nullptr;
};

// Thread-safe. Outlives its places.
class CallLimit {
 public:
  // 0: no limit.
  explicit CallLimit(std::int64_t most) : most_(most) {}

  // None where all places are taken.
  std::optional<CallPlace> Enter() {
    if (inside_.fetch_add(1, std::memory_order_relaxed) >= most_ && most_ > 0) {
      Leave();
      return std::nullopt;
    }
    return CallPlace(*this);
  }
  std::int64_t inside() const { return inside_.load(std::memory_order_relaxed); }
  std::int64_t most() const { return most_; }

 private:
  friend class CallPlace;
  void Leave() { inside_.fetch_sub(1, std::memory_order_relaxed); }

  const std::int64_t most_;
  std::atomic<std::int64_t> inside_ = 0;
};

inline CallPlace::~CallPlace() {
  if (limit_ != nullptr) limit_->Leave();
}

}  // namespace headroom
