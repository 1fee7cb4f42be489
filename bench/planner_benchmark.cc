// How long a plan takes, by the number of rows that wait. The rows' lengths are log-normal, as sentences' and passages' are.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "batching/batch_planner.h"
#include "bench/token_model.h"
#include "memory/estimate_correction.h"

namespace headroom {
namespace {

const TimePoint kNow{std::chrono::hours(1)};

ModelSpec Spec() {
  ModelSpec spec = TokenModel(30521, 64);
  spec.sequence.buckets = {32, 64, 128, 256, 512};
  spec.sequence.padding = Padding::kMultipleOf8;
  return spec;
}

// As calibration leaves them: each bucket and some lengths between, a handful of points each.
std::vector<LengthCurve> Curves() {
  std::vector<LengthCurve> curves;
  for (const std::int64_t length : {8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 384, 512}) {
    LengthCurve curve;
    curve.length = length;
    curve.smooth_below = true;
    for (const std::int64_t rows : {1, 2, 8, 16, 32, 48, 64}) {
      const auto tokens = static_cast<double>(rows * length);
      const double seconds = 0.002 + tokens * 8e-6 + tokens * static_cast<double>(length) * 2e-9;
      curve.points.push_back({rows, Bytes{rows * length * 20000}, FromSeconds(seconds), Bytes{rows * length * 20000}});
    }
    curves.push_back(curve);
  }
  return curves;
}

struct Setting {
  explicit Setting(std::int64_t count) {
    std::mt19937_64 random(1);
    std::lognormal_distribution<double> length(std::log(60), 1.1);
    for (std::int64_t i = 0; i < count; ++i) {
      PendingRow row;
      row.placement = ladder.Place(std::clamp<std::int64_t>(std::llround(length(random)), 1, 512)).value();
      row.arrived = kNow - std::chrono::microseconds(random() % 100000);
      rows.push_back(row);
    }
    limits.max_rows = 64;
    limits.available = limits.budget = limits.idle_budget = MiB(1 << 20);
  }

  Plan Make() const {
    const ReservationEstimator needs(estimator, learned, kNow);
    return PlanBatches(rows, ladder, limits, needs, BatchTimes(latency), kNow);
  }

  const ModelSpec spec = Spec();
  const BucketLadder ladder{spec, DeviceKind::kCpu};
  const CalibratedEstimator estimator{Curves()};
  const LearnedMemory learned{spec.sequence.buckets, 0.05};
  const CalibratedLatency latency{Curves()};
  std::vector<PendingRow> rows;
  PlanLimits limits;
};

void BM_Plan(benchmark::State& state) {
  Setting setting(state.range(0));
  setting.limits.idle_workers = static_cast<int>(state.range(1));
  for (auto _ : state) benchmark::DoNotOptimize(setting.Make());
}
BENCHMARK(BM_Plan)
    ->ArgNames({"rows", "idle_workers"})
    ->ArgsProduct({{1, 16, 64, 256, 1000}, {1, 2}})
    ->Unit(benchmark::kMicrosecond);

// Where half of the lengths have room for few rows only.
void BM_PlanInLittleMemory(benchmark::State& state) {
  Setting setting(state.range(0));
  setting.limits.available = MiB(40);
  for (auto _ : state) benchmark::DoNotOptimize(setting.Make());
}
BENCHMARK(BM_PlanInLittleMemory)->ArgName("rows")->Arg(16)->Arg(1000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace headroom

BENCHMARK_MAIN();
