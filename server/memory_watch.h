// Watches memory at rest: what it was once everything was warm, what it is now, whether it leaks, and when it will be used up.
#pragma once

#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/sync.h"
#include "memory/leak_detector.h"
#include "server/resource_watch.h"

namespace headroom {

// What is known of one figure of memory: `allocated` or `held` of a device, or `resident` of the process, whose device is kHost.
struct MemorySeries {
  std::string device;
  std::string memory;
  Bytes baseline{0};                 // at the first look
  Bytes at_rest{0};                  // now: the least of the looks of the last ten seconds
  std::optional<LeakEstimate> leak;  // none until enough has been seen
};

struct MemoryFigures {
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  std::vector<MemorySeries> series;
  // Seconds until what is left is used up, by the leaks that were found; kNever where none was. Absent until it can be told.
  std::map<std::string, double> exhaustion;  // by device, kHost among them
  std::optional<ProcessMemory> process;
};

inline constexpr const char* kHost = "host";

// The first reading is the baseline: to be made once everything is loaded and warm, and before the first call.
class MemoryWatch final : public WatchTask {
 public:
  // Tells how much memory the host has left; asked only when the process leaks.
  using HostMemoryLeft = std::function<absl::StatusOr<Bytes>()>;
  explicit MemoryWatch(HostMemoryLeft host_left) : host_left_(std::move(host_left)) {}

  // Logs the baseline at the first reading, and a leak when it is found and once an hour while it lasts.
  void Look(const ResourceReading& reading) override EXCLUDES(mutex_);

  // May be called on any thread.
  MemoryFigures Figures() const EXCLUDES(mutex_);

 private:
  // One figure with what has been seen of it.
  struct Series {
    Series(std::string on, std::string of, const LeakOptions& options)
        : device(std::move(on)), memory(std::move(of)), detector(options) {}

    std::string device;
    std::string memory;
    LeakDetector detector;
    std::optional<Bytes> baseline;
    std::deque<Bytes> recent;
    std::optional<TimePoint> told;  // when a leak was last logged

    Bytes at_rest() const;
  };

  // Adds a sample to a series, and logs its leak where that is news.
  Series& Sample(const ResourceReading& reading, const std::string& device, const std::string& memory, Bytes bytes,
                 const LeakOptions& options) REQUIRES(mutex_);
  // Notes when `left` will be used up at the pace of `series`, where that is sooner than what is known of its device.
  void NoteExhaustion(const Series& series, Bytes left) REQUIRES(mutex_);

  const HostMemoryLeft host_left_;

  mutable Mutex mutex_;
  std::deque<Series> series_ GUARDED_BY(mutex_);
  std::map<std::string, double> exhaustion_ GUARDED_BY(mutex_);
  std::optional<ProcessMemory> process_ GUARDED_BY(mutex_);
};

}  // namespace headroom
