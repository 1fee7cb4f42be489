#include "server/worker_pool.h"

#include <exception>
#include <latch>

#include "base/log.h"
#include "server/model_loader.h"

namespace headroom {

namespace {

// What is thrown here is a fault of ours or memory that ran out; its rows have been answered INTERNAL when they were dropped, and
// the others must not suffer.
void RunUntilStopped(Batcher& batcher, const std::stop_token& stop) {
  while (true) {
    try {
      return batcher.Run(stop);
    } catch (const std::exception& error) {
      Log(LogLevel::kError, "a worker's turn was broken off", {{"reason", error.what()}});
    }
  }
}

}  // namespace

WorkerPool::WorkerPool(const Parts& parts) {
  const auto count = static_cast<std::ptrdiff_t>(parts.devices.size()) * parts.workers_per_device;
  // Shared: a worker may still be counting down when the constructor has been woken.
  const auto warm = std::make_shared<std::latch>(count);
  for (const auto& device : parts.devices) {
    device->workers = parts.workers_per_device;
    for (int i = 0; i < parts.workers_per_device; ++i) {
      batchers_.push_back(std::make_unique<Batcher>(*device, parts.catalog.models(), parts.observer, parts.work, parts.clock));
      threads_.emplace_back(
          [batcher = batchers_.back().get(), on = device.get(), models = parts.models, warm](const std::stop_token& stop) mutable {
            for (const CatalogEntry& entry : models) {
              if (const ModelInstance* instance = entry.model->InstanceOn(*on)) WarmThread(*entry.model, *instance);
            }
            // A model that is swapped out later must not be kept by this thread.
            models.clear();
            warm->count_down();
            RunUntilStopped(*batcher, stop);
          });
    }
  }
  warm->wait();
  timer_ = std::jthread([&timer = parts.deadlines](const std::stop_token& stop) { timer.Run(stop); });
}

WorkerPool::~WorkerPool() {
  // All are asked before any is waited for; the timer goes last, since rows may expire while the queues are emptied.
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

}  // namespace headroom
