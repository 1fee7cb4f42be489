#include "batching/run_gate.h"

#include <utility>

namespace headroom {

RunPass::RunPass(RunPass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)), alone_(other.alone_) {}

RunPass::~RunPass() {
  if (gate_ != nullptr) gate_->Leave(alone_);
}

RunPass RunGate::Enter() {
  MutexLock lock(mutex_);
  const std::uint64_t turn = next_turn_++;
  while (alone_ || (!waiting_alone_.empty() && *waiting_alone_.begin() < turn)) changed_.Wait(mutex_);
  ++running_;
  return {*this, false};
}

RunPass RunGate::EnterAlone() {
  MutexLock lock(mutex_);
  const std::uint64_t turn = next_turn_++;
  waiting_alone_.insert(turn);
  while (running_ > 0 || *waiting_alone_.begin() < turn) changed_.Wait(mutex_);
  waiting_alone_.erase(turn);
  ++running_;
  alone_ = true;
  return {*this, true};
}

int RunGate::running() const {
  MutexLock lock(mutex_);
  return running_;
}

void RunGate::Leave(bool alone) {
  {
    MutexLock lock(mutex_);
    --running_;
    if (alone) alone_ = false;
  }
  changed_.NotifyAll();
}

}  // namespace headroom
