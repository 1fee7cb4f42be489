// A worker that has claimed a batch, for as long as it has.
#pragma once

#include <atomic>

namespace headroom {

class BusyWorker {
 public:
  // `count` outlives it.
  explicit BusyWorker(std::atomic<int>& count) : count_(count) { ++count_; }
  ~BusyWorker() { --count_; }
  BusyWorker(const BusyWorker&) = delete;
  BusyWorker& operator=(const BusyWorker&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace headroom
