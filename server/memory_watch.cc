#include "server/memory_watch.h"

#include <algorithm>

#include "base/log.h"

namespace headroom {
namespace {

// The least of so many looks is at rest, even where a worker is busy at nearly every one of them: ten seconds.
constexpr std::size_t kRecentLooks = 20;
constexpr Duration kTellAgain = std::chrono::hours(1);

// Held memory grows by whole segments with every new shape, and is cached in between.
const LeakOptions kHeldOptions = {.least_growth = MiB(64)};

}  // namespace

Bytes MemoryWatch::Series::at_rest() const { return *std::min_element(recent.begin(), recent.end()); }

MemoryWatch::Series& MemoryWatch::Sample(const ResourceReading& reading, const std::string& device, const std::string& memory,
                                         Bytes bytes, const LeakOptions& options) {
  const auto found = std::find_if(series_.begin(), series_.end(),
                                  [&](const Series& series) { return series.device == device && series.memory == memory; });
  Series& series = found == series_.end() ? series_.emplace_back(device, memory, options) : *found;
  if (!series.baseline) {
    series.baseline = bytes;
    Log(LogLevel::kInfo, "memory at rest, the baseline", {{"device", device}, {"memory", memory}, {"bytes", bytes}});
  }
  series.recent.push_back(bytes);
  if (series.recent.size() > kRecentLooks) series.recent.pop_front();
  series.detector.Add(reading.time, reading.calls, bytes);

  const std::optional<LeakEstimate> leak = series.detector.Estimate();
  const bool is_news = !series.told || reading.time - *series.told >= kTellAgain;
  if (leak && leak->leaking && is_news) {
    series.told = reading.time;
    Log(LogLevel::kWarning, "memory leaks: what is at rest grows from call to call",
        {{"device", device},
         {"memory", memory},
         {"bytes_per_call", leak->bytes_per_call},
         {"bytes_per_second", leak->bytes_per_second},
         {"confidence", leak->confidence},
         {"over_calls", leak->calls},
         {"over_seconds", Seconds(leak->span)},
         {"baseline_bytes", *series.baseline},
         {"at_rest_bytes", series.at_rest()}});
  }
  return series;
}

void MemoryWatch::NoteExhaustion(const Series& series, Bytes left) {
  const std::optional<LeakEstimate> leak = series.detector.Estimate();
  if (!leak) return;
  double seconds = MemoryFigures::kNever;
  if (leak->leaking && leak->bytes_per_second > 0) {
    seconds = static_cast<double>(std::max<std::int64_t>(0, left.count)) / leak->bytes_per_second;
  }
  const auto [known, is_new] = exhaustion_.try_emplace(series.device, seconds);
  known->second = std::min(known->second, seconds);
}

void MemoryWatch::Look(const ResourceReading& reading) {
  MutexLock lock(mutex_);
  exhaustion_.clear();
  for (const ResourceReading::OnDevice& device : reading.devices) {
    const std::string& name = device.on->device->name();
    const DeviceMemory& memory = device.memory;
    // Running batches move bytes from free to held, and leave the sum.
    const Bytes takeable = memory.free + memory.held;
    const Series& allocated = Sample(reading, name, "allocated", memory.allocated, {});
    NoteExhaustion(allocated, takeable - allocated.at_rest());
    const Series& held = Sample(reading, name, "held", memory.held, kHeldOptions);
    NoteExhaustion(held, takeable - held.at_rest());
  }
  process_ = reading.process;
  if (!process_) return;
  const Series& resident = Sample(reading, kHost, "resident", process_->own, {});
  const std::optional<LeakEstimate> leak = resident.detector.Estimate();
  Bytes left{0};
  if (leak && leak->leaking) {
    const absl::StatusOr<Bytes> told = host_left_();
    if (!told.ok()) return;
    left = *told;
  }
  NoteExhaustion(resident, left);
}

MemoryFigures MemoryWatch::Figures() const {
  MutexLock lock(mutex_);
  MemoryFigures figures;
  for (const Series& series : series_) {
    figures.series.push_back({series.device, series.memory, *series.baseline, series.at_rest(), series.detector.Estimate()});
  }
  figures.exhaustion = exhaustion_;
  figures.process = process_;
  return figures;
}

}  // namespace headroom
