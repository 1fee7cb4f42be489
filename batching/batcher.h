// The loop of a worker: reserve what is available, claim a batch that fits it, run it, give each row its answer.
#pragma once

#include <atomic>
#include <memory>
#include <stop_token>

#include "base/clock.h"
#include "base/sync.h"
#include "batching/batch_observer.h"
#include "batching/served_model.h"

namespace headroom {

// Tells sleeping workers that there may be something to do. Counts, so that a call between a look at the queues and falling asleep
// is not missed.
class WorkSignal {
 public:
  void Notify() EXCLUDES(mutex_);
  // From now on no row waits for company: the server is ending.
  void Hurry() {
    hurried_ = true;
    Notify();
  }
  bool hurried() const { return hurried_; }
  std::uint64_t count() const EXCLUDES(mutex_);
  // Waits until the count is no longer `seen`, or until `time`.
  void WaitBeyond(std::uint64_t seen, TimePoint time, Clock& clock) EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  CondVar condition_;
  std::uint64_t count_ GUARDED_BY(mutex_) = 0;
  std::atomic<bool> hurried_ = false;
};

// One worker of one device. Step may be called by one thread at a time; the rest is thread-safe.
class Batcher {
 public:
  // Everything passed outlives the batcher. `work` is shared by all workers and by whoever enqueues.
  Batcher(ServingDevice& device, const ModelSet& models, BatchObserver& observer, WorkSignal& work, Clock& clock)
      : device_(device), models_(models), observer_(observer), work_(work), clock_(clock) {}

  // How long small rows may pass by a large one that waits for the memory of running batches.
  static constexpr Duration kMaxOvertaking = std::chrono::milliseconds(500);

  struct StepResult {
    bool ran = false;                // a batch was run, or failed
    bool holds_back = false;         // rows wait for memory that less urgent ones may not take
    TimePoint next_wake = kForever;  // where none was: when to look again at the latest
  };

  // One turn: answers what is dead, then runs the most urgent batch that fits the memory available, of the model whose turn
  // it is. Does not wait.
  StepResult Step();

  // Steps until `stop` is asked for *and* nothing waits that this device serves.
  void Run(const std::stop_token& stop);

 private:
  struct Work {
    std::shared_ptr<const ServedModel> model;
    const ModelInstance* instance = nullptr;
    Claim claim;
    Reservation reservation;
    TimePoint started{};
    ThreadShare threads = {};
  };

  // Models that have rows waiting, in turn; where two are level, the one with the most urgent row first.
  std::vector<std::shared_ptr<const ServedModel>> ModelsByTurn() const;
  // Of all models on the device.
  std::int64_t RowsWaiting() const;
  StepResult TryModel(const std::shared_ptr<const ServedModel>& model);
  // Reserves what is available, claims a batch that fits it, and keeps what it needs. INTERNAL where the device does not tell its
  // memory.
  absl::Status ClaimWithin(Work& work);
  // Threads for the claimed batch; returns what those beyond the usual ones take of the reservation.
  Bytes TakeThreads(Work& work);
  void FinishDead(const Claim& claim);

  ServingDevice& device_;
  const ModelSet& models_;
  BatchObserver& observer_;
  WorkSignal& work_;
  Clock& clock_;
};

}  // namespace headroom
