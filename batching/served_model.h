// A model as it is served: its rules, its queue, and itself on each device.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/sync.h"
#include "batching/call_limit.h"
#include "batching/degradation.h"
#include "batching/latency_model.h"
#include "batching/length_histogram.h"
#include "batching/model_turns.h"
#include "batching/request_queue.h"
#include "batching/run_gate.h"
#include "batching/run_register.h"
#include "batching/thread_shares.h"
#include "memory/estimate_correction.h"
#include "memory/host_budget.h"
#include "memory/memory_budget.h"
#include "memory/memory_estimator.h"
#include "runtime/device.h"
#include "runtime/precision_choice.h"

namespace headroom {

// A device as batching sees it. Outlives every model and batcher.
struct ServingDevice {
  std::unique_ptr<Device> device;
  std::unique_ptr<MemoryBudget> budget;
  // Passed by every run. What must not share the device (a last attempt, a probe while others serve) goes through alone.
  RunGate gate;
  ModelTurns turns;
  std::atomic<int> workers = 1;  // that run batches on it
  // Batches that run now, for whoever looks for one that hangs.
  RunRegister runs;
  // Held by a worker from reserving all that is available until it has kept what its batch needs: another that planned meanwhile
  // would plan with nothing. The budget's and the queues' locks are taken inside it, never it inside them.
  Mutex planning;
  // What is left out while memory is short; set by a DegradationWatch.
  std::atomic<DegradationLevel> degradation = DegradationLevel::kNone;
  // What batches' staging is counted in; null: nowhere.
  HostBudget* host = nullptr;
  // The processors' threads that runs have, where the device is the CPU.
  ThreadShares threads;

  // Marks memory at rest anew, with the device to itself: between the batches of a server that goes on.
  absl::Status MarkAtRestAnew();

  // The right to the host memory of a batch's inputs and outputs.
  HostReservation ReserveStaging(const ModelSpec& spec, const BatchShape& shape) const;
};

// What loading a model and warming it up added to what is at rest.
struct MemoryFootprint {
  Bytes allocated{0};             // on its device
  std::optional<Bytes> resident;  // in the process; what was freed meanwhile counts against it. None where it cannot be read
};
// Bytes of the inputs and outputs of a batch of `shape` in host memory. On the CPU outputs are tensors, which the device counts.
Bytes StagingBytes(const ModelSpec& spec, const BatchShape& shape, DeviceKind kind);

// A model on one device.
struct ModelInstance {
  ServingDevice* on = nullptr;
  std::shared_ptr<const LoadedModel> loaded;
  BucketLadder ladder;
  CalibratedEstimator estimator;         // of what a batch makes the allocator hold: what a budget counts
  CalibratedEstimator tensor_estimator;  // of the bytes in its tensors, which a run can be compared with
  std::shared_ptr<LearnedMemory> learned;
  std::shared_ptr<LatencyModel> latency;
  MemoryFootprint footprint = {};
  PrecisionTrial precision = {};  // that it computes in, and what that costs
  // What each thread beyond the calibrated ones adds to a run's peak; none: it is not known, and runs are not widened.
  std::optional<Bytes> thread_memory = std::nullopt;

  ModelInstance(ServingDevice* serving, std::shared_ptr<const LoadedModel> model, BucketLadder lengths, CalibratedEstimator held,
                CalibratedEstimator tensors, double safety_margin);

  // What to reserve for a batch at `now`. Not to outlive the instance.
  ReservationEstimator Needs(TimePoint now) const { return {estimator, *learned, now}; }

  // What so many threads beyond the calibrated ones add to a run's estimate; and to what is reserved for it at `length`.
  Bytes OfThreads(int extra) const { return {thread_memory.value_or(Bytes{0}).count * extra}; }
  Bytes NeedsOfThreads(int extra, std::int64_t length) const {
    return Scale(OfThreads(extra), learned->correction.FactorAt(length));
  }

  // How long a batch of `shape` may be expected to run.
  Duration ExpectedRun(BatchShape shape) const { return latency->Of(shape); }
  // What a row adds to what waits, in batches of up to `largest_batch` rows.
  RowWork WorkOf(const Placement& placement, std::int64_t largest_batch) const;
};

// One version of one model. Immutable but for its queue, which guards itself. Requests under way and batchers hold it by
// shared_ptr, so that a version that is swapped out lives until its last row is answered.
struct ServedModel {
  std::shared_ptr<const ModelSpec> spec;
  std::int64_t version = 0;
  std::vector<ModelInstance> instances;  // one a device, at least one
  mutable CallLimit calls;               // that are inside, running or waiting
  mutable RequestQueue queue;
  // True lengths of the rows that were admitted, of all versions by this name. Not null.
  const std::shared_ptr<LengthHistogram> lengths;

  // `totals` bounds what waits for all models together; it outlives the model. `counted_in` is the histogram of the versions
  // before; null: a new one.
  ServedModel(std::shared_ptr<const ModelSpec> model_spec, std::int64_t model_version, std::vector<ModelInstance> on_devices,
              QueueTotals* totals = nullptr, std::shared_ptr<LengthHistogram> counted_in = nullptr)
      : spec(std::move(model_spec)),
        version(model_version),
        instances(std::move(on_devices)),
        calls(spec->queue.max_calls),
        queue({spec->queue.max_rows, spec->queue.max_bytes, totals}),
        lengths(counted_in != nullptr ? std::move(counted_in) : std::make_shared<LengthHistogram>()) {}

  // A request was refused for load.
  void NoteRefusal(TimePoint now) const { refused_.store(now, std::memory_order_relaxed); }
  // Whether that has happened within the last second: then it is worth refusing others before they are looked at.
  bool Overloaded(TimePoint now) const { return now - refused_.load(std::memory_order_relaxed) < std::chrono::seconds(1); }

  // On the first of its devices: they are taken to be alike.
  RowWork WorkOf(const Placement& placement) const { return instances.front().WorkOf(placement, spec->largest_batch()); }
  const LatencyModel& latency() const { return *instances.front().latency; }

  // Of the device that is best off: a row may run on any.
  DegradationLevel degradation() const;

  const ModelInstance* InstanceOn(const ServingDevice& device) const;

  // What to reserve for one row at its placement on the device where it needs least, and what that device's idle budget is.
  struct Room {
    Bytes needs{0};
    Bytes idle_budget{0};
    bool fits() const { return needs <= idle_budget; }
  };
  Room RoomFor(const Placement& placement) const;

 private:
  mutable std::atomic<TimePoint> refused_ = TimePoint{} - std::chrono::hours(1);
};

// Closes its queue and answers what waits in it UNAVAILABLE.
void RefuseWaiting(const ServedModel& model, const char* why);

// The refusal of a row that could not fit even on the idle device.
absl::Status OverBudgetError(Bytes needs, Bytes allowed);

// The models that rows may wait for: those that are served, and those that are being taken out and still have rows. Thread-safe.
class ModelSet {
 public:
  using Models = std::vector<std::shared_ptr<const ServedModel>>;

  // A snapshot; cheap.
  std::shared_ptr<const Models> All() const EXCLUDES(mutex_);
  void Add(std::shared_ptr<const ServedModel> model) EXCLUDES(mutex_);
  // Its queue is closed and empty.
  void Remove(const ServedModel& model) EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const Models> models_ GUARDED_BY(mutex_) = std::make_shared<const Models>();
};

}  // namespace headroom
