#include "batching/run_register.h"

#include <algorithm>
#include <utility>

namespace headroom {

RunEntry::~RunEntry() { in_.Leave(place_); }

RunEntry RunRegister::Enter(RunUnderWay run) {
  MutexLock lock(mutex_);
  return {*this, runs_.insert(runs_.end(), std::move(run))};
}

int RunRegister::count() const {
  MutexLock lock(mutex_);
  return static_cast<int>(runs_.size());
}

Duration RunRegister::Left(TimePoint now) const {
  Duration left{0};
  MutexLock lock(mutex_);
  for (const RunUnderWay& run : runs_) left += std::max(Duration::zero(), After(run.started, run.expected) - now);
  return left;
}

std::vector<RunUnderWay> RunRegister::UnderWay() const {
  MutexLock lock(mutex_);
  return {runs_.begin(), runs_.end()};
}

void RunRegister::Leave(std::list<RunUnderWay>::iterator place) {
  MutexLock lock(mutex_);
  runs_.erase(place);
}

}  // namespace headroom
