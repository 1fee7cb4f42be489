// Who runs on a device now, and the right to run there alone.
#pragma once

#include <cstdint>
#include <set>

#include "base/sync.h"

namespace headroom {

class RunGate;

// The right to run on a device; gives itself back when it is destroyed. Movable.
class RunPass {
 public:
  RunPass(RunPass&& other) noexcept;
  RunPass& operator=(RunPass&&) = delete;
  ~RunPass();

 private:
  friend class RunGate;
  RunPass(RunGate& gate, bool alone) : gate_(&gate), alone_(alone) {}

  RunGate* gate_;
  const bool alone_;
};

// Thread-safe. In the order of asking, so that neither a stream of ordinary runs nor one of lone ones keeps the other waiting. A
// thread that holds a pass must not ask for another.
class RunGate {
 public:
  // Waits while somebody runs alone, or asked to before this call.
  RunPass Enter() EXCLUDES(mutex_);
  // Waits until nobody runs.
  RunPass EnterAlone() EXCLUDES(mutex_);

  // How many run now.
  int running() const EXCLUDES(mutex_);

 private:
  friend class RunPass;
  void Leave(bool alone) EXCLUDES(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  int running_ GUARDED_BY(mutex_) = 0;
  bool alone_ GUARDED_BY(mutex_) = false;
  std::uint64_t next_turn_ GUARDED_BY(mutex_) = 0;
  std::set<std::uint64_t> waiting_alone_ GUARDED_BY(mutex_);  // turns of those that want the device to themselves
};

}  // namespace headroom
