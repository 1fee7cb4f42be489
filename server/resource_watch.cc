#include "server/resource_watch.h"

#include <utility>

namespace headroom {

ResourceReading ResourceWatch::Read() {
  ResourceReading reading;
  // Before the memory, so that what it says is not blamed on calls that were answered after.
  reading.calls = parts_.calls_answered();
  for (const auto& device : parts_.devices) {
    if (lost_.contains(device.get())) continue;
    const absl::StatusOr<DeviceMemory> memory = device->device->Memory();
    if (memory.ok()) {
      const bool at_rest = device->budget->reserved() == Bytes{0} && device->gate.running() == 0;
      reading.devices.push_back({device.get(), *memory, at_rest});
    } else {
      lost_.insert(device.get());
      parts_.observer.DeviceWasLost(device->device->name(), std::string(memory.status().message()));
    }
  }
  if (const auto process = parts_.process_memory(); process.ok()) reading.process = *process;
  reading.time = parts_.clock.Now();
  return reading;
}

TimePoint ResourceWatch::Step() {
  const ResourceReading reading = Read();
  for (WatchTask* task : parts_.tasks) task->Look(reading);
  return After(reading.time, kPeriod);
}

void ResourceWatch::Run(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(mutex_);
    stopped_.NotifyOne();
  });
  while (!stop.stop_requested()) {
    const TimePoint next = Step();
    MutexLock lock(mutex_);
    while (!stop.stop_requested() && parts_.clock.Now() < next) parts_.clock.WaitUntil(mutex_, stopped_, next);
  }
}

}  // namespace headroom
