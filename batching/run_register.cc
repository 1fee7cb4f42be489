#include "batching/run_register.h"

#include <utility>

namespace headroom {

RunEntry::~RunEntry() { in_.Leave(place_); }

RunEntry RunRegister::Enter(RunUnderWay run) {
  MutexLock lock(mutex_);
  return {*this, runs_.insert(runs_.end(), std::move(run))};
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
