#include "server/fragment_release.h"

#include "base/log.h"

namespace headroom {

bool WorthGivingBack(const DeviceMemory& memory, Duration idle, const FragmentOptions& options) {
  if (idle < options.idle) return false;
  const Bytes cached = memory.held - memory.allocated;
  if (cached < options.least) return false;
  const auto share = [](Bytes part, Bytes whole) { return static_cast<double>(part.count) / static_cast<double>(whole.count); };
  return share(memory.unusable, memory.held) > options.split_share || share(cached, memory.total) > options.cached_share;
}

void FragmentRelease::Look(const ResourceReading& reading) {
  for (const ResourceReading::OnDevice& device : reading.devices) {
    // Calls tell what ran between two looks.
    const auto [entry, is_new] = resting_.try_emplace(device.on, Rest{reading.time, reading.calls, false});
    Rest& rest = entry->second;
    if (!device.at_rest || reading.calls != rest.calls) rest = {reading.time, reading.calls, false};
    if (rest.done || !WorthGivingBack(device.memory, reading.time - rest.since, options_)) continue;
    rest.done = true;
    device.on->device->EmptyCache();
    const absl::StatusOr<DeviceMemory> after = device.on->device->Memory();
    if (!after.ok()) continue;  // the next look finds it lost
    Log(LogLevel::kInfo, "nothing runs: cached memory was given back to the device",
        {{"device", device.on->device->name()},
         {"cached_bytes", device.memory.held - device.memory.allocated},
         {"split_bytes", device.memory.unusable},
         {"given_back_bytes", device.memory.held - after->held}});
  }
}

}  // namespace headroom
