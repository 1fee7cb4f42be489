// Requests through the real queue, planner, budget and workers, without a server around them.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "batching/batcher.h"
#include "test/fakes/recording_observer.h"
#include "test/fakes/toy_request.h"
#include "test/gpu/check_run.h"

namespace headroom {

// The lengths of the launch day: 80 % short (under a quarter of the longest), 15 % up to the longest, 5 % beyond it, cut.
std::vector<std::int64_t> LaunchDayLengths(std::int64_t count, std::int64_t longest, std::mt19937_64& random);

// A row of `length` ids below `vocabulary`.
Ids RandomRow(std::int64_t length, std::int64_t vocabulary, std::mt19937_64& random);

// One model served by some workers, from construction to destruction. Belongs to one thread.
class Traffic {
 public:
  // The workers are warm, and memory at rest is marked anew, when it returns.
  Traffic(CheckRun& run, const CheckedModel& model, int workers);
  // Ends when every row is answered.
  ~Traffic();
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  // A request of one row; is answered at once where the queue is full.
  ToyRequest Send(const Ids& row);

  const RecordingObserver& observer() const { return observer_; }
  const absl::Status& ready() const { return ready_; }

 private:
  CheckRun& run_;
  std::shared_ptr<const ServedModel> model_;
  RecordingObserver observer_;
  WorkSignal work_;
  ModelSet models_;
  std::vector<std::unique_ptr<Batcher>> batchers_;
  std::vector<std::jthread> threads_;
  absl::Status ready_;
};

// How requests were answered.
struct Answers {
  std::int64_t ok = 0;
  std::int64_t refused = 0;  // for memory
  std::int64_t failed = 0;   // otherwise
  std::string first_failure;

  void Count(const Reply& reply);
};

// The most rows that a batch had.
std::int64_t LargestBatch(const std::vector<BatchReport>& batches);

// Waits; a check may, a server may not.
void Pause(Duration time);

}  // namespace headroom
