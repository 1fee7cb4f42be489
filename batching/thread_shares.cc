#include "batching/thread_shares.h"

#include <algorithm>
#include <utility>

namespace headroom {

int ThreadsForRun(const ThreadLimits& limits, const ThreadDemand& demand) {
  const std::int64_t soon = std::min<std::int64_t>(demand.idle_workers, demand.waiting) * limits.least;
  const std::int64_t free = std::int64_t{limits.processors} - demand.taken - soon;
  const std::int64_t busy = limits.least_work > Duration{0} ? demand.work / limits.least_work : limits.most;
  const std::int64_t most = std::max<std::int64_t>(limits.least, std::min<std::int64_t>(limits.most, busy));
  return static_cast<int>(std::clamp<std::int64_t>(free, limits.least, most));
}

ThreadShare::ThreadShare(ThreadShare&& other) noexcept
    : shares_(std::exchange(other.shares_, nullptr)), threads_(other.threads_), extra_(other.extra_) {}

ThreadShare& ThreadShare::operator=(ThreadShare&& other) noexcept {
  if (this == &other) return *this;
  End();
  shares_ = std::exchange(other.shares_, nullptr);
  threads_ = other.threads_;
  extra_ = other.extra_;
  return *this;
}

void ThreadShare::GiveExtraBack() {
  if (shares_ != nullptr) shares_->Return(extra_, /*ended=*/false);
  threads_ -= extra_;
  extra_ = 0;
}

void ThreadShare::End() {
  if (shares_ != nullptr) std::exchange(shares_, nullptr)->Return(threads_, /*ended=*/true);
}

void ThreadShares::SetLimits(ThreadLimits limits) {
  MutexLock lock(mutex_);
  limits_ = limits;
}

ThreadLimits ThreadShares::limits() const {
  MutexLock lock(mutex_);
  return limits_;
}

ThreadShare ThreadShares::Take(int workers, std::int64_t waiting, Duration work) {
  MutexLock lock(mutex_);
  const int idle = std::max(0, workers - runs_ - 1);
  const int threads = ThreadsForRun(limits_, {.taken = taken_, .idle_workers = idle, .waiting = waiting, .work = work});
  taken_ += threads;
  ++runs_;
  return {*this, threads, threads - limits_.least};
}

int ThreadShares::taken() const {
  MutexLock lock(mutex_);
  return taken_;
}

int ThreadShares::runs() const {
  MutexLock lock(mutex_);
  return runs_;
}

void ThreadShares::Return(int threads, bool ended) {
  MutexLock lock(mutex_);
  taken_ -= threads;
  if (ended) --runs_;
}

}  // namespace headroom
