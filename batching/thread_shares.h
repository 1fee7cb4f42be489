// How many threads a run on a CPU gets: an idle machine gives all its processors to the one batch there is, a busy one runs a batch
// a processor.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/sync.h"

namespace headroom {

struct ThreadLimits {
  int processors = 1;  // that the process may use
  int least = 1;       // that every run has: --intra-op-threads
  int most = 1;        // that a run may have; `least` where runs are never widened
  // Of a run's expected time, for each of its threads: with less to do, waking them costs what they gain. Measured with MiniLM: two
  // threads gain nothing on 5 ms of work, a quarter on 9, four fifths on 130.
  Duration least_work = std::chrono::milliseconds(4);
};

// What is known when a run starts.
struct ThreadDemand {
  int taken = 0;             // threads of the runs under way
  int idle_workers = 0;      // that may start a run at once
  std::int64_t waiting = 0;  // rows that wait for one, this run's not among them
  Duration work{0};          // how long the run is expected to take with `least`
};

// The threads of a run: what no run under way has, less what the rows that wait are about to take, each idle worker `least` for a
// row or more of them. Never less than `least`, which a busy machine gives, nor more than `most`, nor than there is work for.
//
// It is decided once, when a run starts. What comes later finds the processors taken and starts with `least`: for the rest of the
// wide run there is then a thread too many, which is the price of not having waited.
int ThreadsForRun(const ThreadLimits& limits, const ThreadDemand& demand);

class ThreadShares;

// The right of a run to so many threads; gives itself back. Movable.
class ThreadShare {
 public:
  ThreadShare() = default;
  ThreadShare(ThreadShare&& other) noexcept;
  ThreadShare& operator=(ThreadShare&& other) noexcept;
  ~ThreadShare() { End(); }

  int threads() const { return threads_; }
  // Of these, beyond what every run has.
  int extra() const { return extra_; }
  // Down to what every run has.
  void GiveExtraBack();
  // Gives all of it back; what it was can still be read.
  void End();

 private:
  friend class ThreadShares;
  ThreadShare(ThreadShares& shares, int threads, int extra) : shares_(&shares), threads_(threads), extra_(extra) {}

  ThreadShares* shares_ = nullptr;
  int threads_ = 0;
  int extra_ = 0;
};

// The threads of one device's runs. Thread-safe. Where no limits are set, as on a GPU, all runs get one and it means nothing.
class ThreadShares {
 public:
  void SetLimits(ThreadLimits limits) EXCLUDES(mutex_);
  ThreadLimits limits() const EXCLUDES(mutex_);
  // Beyond what every run has, at most.
  int most_extra() const EXCLUDES(mutex_) {
    const ThreadLimits now = limits();
    return now.most > now.least ? now.most - now.least : 0;
  }

  // For a run of so much `work` that starts now on a device of `workers`, while `waiting` rows wait for another.
  ThreadShare Take(int workers, std::int64_t waiting, Duration work) EXCLUDES(mutex_);
  // That runs have now.
  int taken() const EXCLUDES(mutex_);
  // Runs that have threads: from a worker's claim on.
  int runs() const EXCLUDES(mutex_);

 private:
  friend class ThreadShare;
  void Return(int threads, bool ended) EXCLUDES(mutex_);

  mutable Mutex mutex_;
  ThreadLimits limits_ GUARDED_BY(mutex_);
  int taken_ GUARDED_BY(mutex_) = 0;
  int runs_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headroom
