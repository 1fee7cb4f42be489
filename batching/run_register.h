// The runs that are under way on a device: since when, and how long each was expected to take.
#pragma once

#include <list>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "runtime/device.h"

namespace headroom {

struct RunUnderWay {
  std::string model;
  BatchShape shape;
  TimePoint started{};
  Duration expected{0};  // zero: not known
};

class RunRegister;

// A run's place in the register; leaves it when it is destroyed. Belongs to the thread that runs.
class RunEntry {
 public:
  RunEntry(const RunEntry&) = delete;
  RunEntry& operator=(const RunEntry&) = delete;
  ~RunEntry();

 private:
  friend class RunRegister;
  RunEntry(RunRegister& in, std::list<RunUnderWay>::iterator place) : in_(in), place_(place) {}

  RunRegister& in_;
  const std::list<RunUnderWay>::iterator place_;
};

// Thread-safe.
class RunRegister {
 public:
  // To be held while the run lasts.
  [[nodiscard]] RunEntry Enter(RunUnderWay run) EXCLUDES(mutex_);
  int count() const EXCLUDES(mutex_);
  // What is left at `now` of what was expected of all of them together; one that is late counts as about to end.
  Duration Left(TimePoint now) const EXCLUDES(mutex_);
  // All of them, the one that started first in front.
  std::vector<RunUnderWay> UnderWay() const EXCLUDES(mutex_);

 private:
  friend class RunEntry;
  void Leave(std::list<RunUnderWay>::iterator place) EXCLUDES(mutex_);

  mutable Mutex mutex_;
  std::list<RunUnderWay> runs_ GUARDED_BY(mutex_);  // as many as there are workers
};

}  // namespace headroom
