// Who runs next: the server's own queue and planner, and two batchers to compare them with.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "batching/bucket_ladder.h"
#include "batching/request_queue.h"
#include "bench/simulator/modelled_device.h"

namespace headroom {

enum class Policy {
  kOurs,    // RequestQueue and PlanBatches
  kFifo32,  // the 32 rows that came first, padded to the longest of them
  kSingle,  // the row that came first, alone
};

// "ours", "fifo32", "single"; nothing for another name.
std::optional<Policy> PolicyOf(const std::string& name);
const char* NameOf(Policy policy);

// What a worker took.
struct SimulatedBatch {
  std::vector<std::size_t> rows;  // as they were enqueued
  BatchShape shape;
  Bytes needs{0};
  std::int64_t useful_tokens = 0;
  std::vector<QueuedRow> held;  // of kOurs: to be finished
};

// What a worker may have.
struct SimulatedRoom {
  Bytes available{0};
  int idle_workers = 1;  // the one that asks included
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  // False where the queue is full, or the row too long or too large for the idle device.
  virtual bool Enqueue(std::size_t row, std::int64_t length, TimePoint now) = 0;
  // The batch that a worker takes now; none where nothing waits that may run.
  virtual std::optional<SimulatedBatch> Claim(const SimulatedRoom& room, TimePoint now) = 0;
  // It has run.
  virtual void Finish(SimulatedBatch batch, Duration took) = 0;
  // When to claim again though nothing has happened.
  virtual TimePoint next_wake() const { return kForever; }
};

struct SchedulerOptions {
  ModelSpec spec;                          // buckets, tiers, padding, largest batch, queue
  const ModelledDevice* device = nullptr;  // outlives the scheduler
  Bytes budget{0};                         // that running batches may hold together
};

std::unique_ptr<Scheduler> MakeScheduler(Policy policy, const SchedulerOptions& options);

}  // namespace headroom
