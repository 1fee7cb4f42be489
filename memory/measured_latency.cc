#include "memory/measured_latency.h"

#include <algorithm>
#include <optional>

namespace headroom {
namespace {

// Rows × length as a number to compare work by; fixed shapes have no length.
double Work(double rows, double length) { return rows * std::max(length, 1.0); }

Duration Scaled(Duration latency, double factor) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, Duration::period>(latency) * factor);
}

}  // namespace

Duration MeasuredLatency(std::span<const LengthCurve> curves, const BatchShape& shape) {
  std::optional<Duration> quickest;
  Duration slowest{0};
  double slowest_work = 1;
  for (const LengthCurve& curve : curves) {
    for (const Measurement& point : curve.points) {
      const bool covers = curve.length >= shape.length && point.rows >= shape.rows;
      if (covers) quickest = std::min(quickest.value_or(point.latency), point.latency);
      if (point.latency < slowest) continue;
      slowest = point.latency;
      slowest_work = Work(static_cast<double>(point.rows), static_cast<double>(curve.length));
    }
  }
  if (quickest) return *quickest;
  const double ratio = Work(static_cast<double>(shape.rows), static_cast<double>(shape.length)) / slowest_work;
  return Scaled(slowest, std::max(1.0, ratio));
}

}  // namespace headroom
