// The threads that run batches, and the one that keeps deadlines.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "batching/batcher.h"
#include "batching/deadline_timer.h"
#include "server/model_catalog.h"

namespace headroom {

// Ends, in its destructor, when nothing waits any more.
class WorkerPool {
 public:
  struct Parts {
    const std::vector<std::unique_ptr<ServingDevice>>& devices;
    const std::vector<CatalogEntry>& models;  // each is run once on each thread before the constructor returns
    const ModelCatalog& catalog;
    BatchObserver& observer;
    WorkSignal& work;
    DeadlineTimer& deadlines;
    Clock& clock;
    int workers_per_device;
  };
  explicit WorkerPool(const Parts& parts);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

 private:
  std::vector<std::unique_ptr<Batcher>> batchers_;
  std::vector<std::jthread> threads_;
  std::jthread timer_;
};

}  // namespace headroom
