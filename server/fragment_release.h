// Gives memory that an allocator caches in pieces back to the device while nothing runs.
#pragma once

#include <map>

#include "server/resource_watch.h"

namespace headroom {

struct FragmentOptions {
  // Pieces split around live memory, as a share of what is held: what is cached but may refuse a large tensor.
  double split_share = 0.10;
  // What is cached and not in use, as a share of the whole device: what a neighbour cannot have.
  double cached_share = 0.50;
  // What is not worth the time that the next batch takes to get it again.
  Bytes least = MiB(64);
  // For how long nothing ran: the next batch of steady traffic would only take it again.
  Duration idle = std::chrono::seconds(5);
};

// Whether to empty the cache of a device on which nothing has run for `idle`.
bool WorthGivingBack(const DeviceMemory& memory, Duration idle, const FragmentOptions& options);

// Does so, once in each time of rest: what emptying leaves is split around weights and cannot be given back.
class FragmentRelease final : public WatchTask {
 public:
  explicit FragmentRelease(FragmentOptions options = {}) : options_(options) {}

  void Look(const ResourceReading& reading) override;

 private:
  struct Rest {
    TimePoint since{};
    std::int64_t calls = 0;
    bool done = false;
  };

  const FragmentOptions options_;
  std::map<const ServingDevice*, Rest> resting_;
};

}  // namespace headroom
