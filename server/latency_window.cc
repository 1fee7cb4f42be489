#include "server/latency_window.h"

#include <algorithm>
#include <numeric>

namespace headroom {
namespace {

constexpr double kFirstSeconds = 100e-6;
constexpr double kStep = 1.2;

}  // namespace

const std::array<Duration, LatencyWindow::kBuckets>& LatencyWindow::Bounds() {
  static const std::array<Duration, kBuckets> bounds = [] {
    std::array<Duration, kBuckets> made{};
    double seconds = kFirstSeconds;
    for (Duration& bound : made) {
      bound = FromSeconds(seconds);
      seconds *= kStep;
    }
    return made;
  }();
  return bounds;
}

void LatencyWindow::Record(Duration took) {
  const auto& bounds = Bounds();
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end() - 1, took) - bounds.begin();
  counts_[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
}

std::optional<Duration> LatencyWindow::Percentile() {
  Counts now{};
  std::transform(counts_.begin(), counts_.end(), now.begin(),
                 [](const auto& count) { return count.load(std::memory_order_relaxed); });
  Counts lately{};
  std::transform(now.begin(), now.end(), before_.front().begin(), lately.begin(), std::minus<>());
  before_.push_back(now);
  if (before_.size() > kLooks) before_.pop_front();
  const std::int64_t all = std::accumulate(lately.begin(), lately.end(), std::int64_t{0});
  if (all < kLeast) return std::nullopt;
  const std::int64_t below = all - all / 100;  // so many are within the percentile
  std::int64_t seen = 0;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    seen += lately[bucket];
    if (seen >= below) return Bounds()[bucket];
  }
  return Bounds().back();
}

}  // namespace headroom
