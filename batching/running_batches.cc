#include "batching/running_batches.h"

#include <utility>

namespace headroom {

RunningBatch::RunningBatch(RunningBatch&& other) noexcept : all_(std::exchange(other.all_, nullptr)), place_(other.place_) {}

RunningBatch::~RunningBatch() {
  if (all_ == nullptr) return;
  MutexLock lock(all_->mutex_);
  all_->ends_.erase(place_);
}

RunningBatch RunningBatches::Begin(TimePoint until) {
  MutexLock lock(mutex_);
  return {*this, ends_.insert(until)};
}

int RunningBatches::count() const {
  MutexLock lock(mutex_);
  return static_cast<int>(ends_.size());
}

Duration RunningBatches::Left(TimePoint now) const {
  Duration left{0};
  MutexLock lock(mutex_);
  for (const TimePoint end : ends_) {
    if (end > now) left += end - now;
  }
  return left;
}

}  // namespace headroom
