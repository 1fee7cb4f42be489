// The watch: every half second one look at each device and at the process, shown to all who judge it. It finds a lost device when
// no traffic does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "batching/batch_observer.h"
#include "batching/served_model.h"
#include "server/host_memory.h"

namespace headroom {

// One look. What a batch holds at this moment is in the figures, unless nothing ran.
struct ResourceReading {
  struct OnDevice {
    ServingDevice* on = nullptr;
    DeviceMemory memory;
    bool at_rest = false;  // no batch had a reservation
  };
  TimePoint time{};
  std::int64_t calls = 0;                // answered since the start, whatever the answer
  std::optional<ProcessMemory> process;  // none where the kernel does not tell
  std::vector<OnDevice> devices;         // those that answer
};

// Somebody who judges what is seen, on the thread of the watch: quick, and without waiting.
class WatchTask {
 public:
  virtual ~WatchTask() = default;
  virtual void Look(const ResourceReading& reading) = 0;
};

// Step and Run belong to one thread.
class ResourceWatch {
 public:
  // A lost device is to be found within a second.
  static constexpr Duration kPeriod = std::chrono::milliseconds(500);

  struct Parts {
    const std::vector<std::unique_ptr<ServingDevice>>& devices;
    BatchObserver& observer;  // told once of each device that does not tell its memory
    Clock& clock;
    std::function<std::int64_t()> calls_answered;
    std::function<absl::StatusOr<ProcessMemory>()> process_memory;
    std::vector<WatchTask*> tasks;  // shown each reading, in this order; they outlive the watch
  };
  // What is passed outlives the watch.
  explicit ResourceWatch(Parts parts) : parts_(std::move(parts)) {}

  // One look; says when the next is due.
  TimePoint Step();

  // Looks again and again until `stop` is asked for.
  void Run(const std::stop_token& stop) EXCLUDES(mutex_);

 private:
  ResourceReading Read();

  const Parts parts_;
  std::set<const ServingDevice*> lost_;

  Mutex mutex_;
  CondVar stopped_;
};

}  // namespace headroom
