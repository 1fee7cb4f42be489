// Whose turn it is among the models that share a device.
#pragma once

#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "base/sync.h"

namespace headroom {

// Start-time fair queueing over models: each that has rows waiting gets the same share of the device's time, however many rows the
// others have. A model's time is what its batches were expected to take; one that had nothing to run does not save its share up.
// Thread-safe.
class ModelTurns {
 public:
  // The time that the model's next batch counts from: the one with the least goes first.
  Duration StartOf(const std::string& model) const EXCLUDES(mutex_);
  // A batch of the model begins.
  void Take(const std::string& model, Duration expected) EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::unordered_map<std::string, Duration> used_ GUARDED_BY(mutex_);
  Duration now_ GUARDED_BY(mutex_){0};  // where the batch that began last counted from
};

}  // namespace headroom
