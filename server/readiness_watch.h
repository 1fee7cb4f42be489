// Looks at what the thresholds of readiness are about, and tells the server's lifecycle.
#pragma once

#include <array>
#include <atomic>

#include "batching/served_model.h"
#include "server/latency_window.h"
#include "server/lifecycle.h"
#include "server/readiness_thresholds.h"
#include "server/resource_watch.h"

namespace headroom {

class ReadinessWatch final : public WatchTask {
 public:
  // What is passed by reference outlives the watch.
  ReadinessWatch(const ModelSet& models, Lifecycle& lifecycle, const ReadinessOptions& options)
      : models_(models), lifecycle_(lifecycle), thresholds_(options) {}

  // Tells the lifecycle what strains the server, and logs each change.
  void Look(const ResourceReading& reading) override;

  // An admitted request was answered. Any thread.
  void Answered(Duration took) { latencies_.Record(took); }
  // Any thread.
  bool strained(StrainKind kind) const { return strained_[static_cast<std::size_t>(kind)]; }

 private:
  ReadinessFigures FiguresOf(const ResourceReading& reading);

  const ModelSet& models_;
  Lifecycle& lifecycle_;
  ReadinessThresholds thresholds_;
  LatencyWindow latencies_;
  bool was_strained_ = false;
  std::array<std::atomic<bool>, kStrainKinds> strained_{};
};

}  // namespace headroom
