// What `headroom plan` has found out, and how it is printed. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "batching/bucket_tuning.h"
#include "memory/memory_estimator.h"
#include "server/card_presets.h"
#include "server/traffic_mix.h"

namespace headroom {

// The largest batch of a bucket, or of a length limit of rows that run alone. All figures but the bucket are 0 where nothing fits.
struct PlanRow {
  std::int64_t bucket = 0;
  std::int64_t largest_batch = 0;
  Bytes estimated{0};              // of the run, beyond what is there at rest
  Bytes measured{0};               // what the allocator took from the device, on the CPU what was in tensors
  std::optional<Bytes> allocated;  // what was in tensors; nothing where it could not be told
  Duration latency{0};
};

// What a batch as large as the configuration allows would take at the length that a share of the traffic does not exceed.
struct PercentilePlan {
  double percentile = 0;
  std::int64_t length = 0;
  std::optional<BatchShape> shape;  // nothing where such a row is refused
  Bytes needs{0};                   // margin included
  std::int64_t largest_batch = 0;   // that fits
};

struct TrafficPlan {
  TrafficMix mix;
  std::string padding;              // "to the bucket"
  std::vector<Bytes> full_batches;  // for each class of the mix, what is reserved for its largest batch
  std::vector<PercentilePlan> percentiles;
  std::optional<double> rows_per_second;  // of one worker; nothing on a device that does not compute
  // The model's buckets and the best ones, each row padded to its bucket; nothing where no row runs in a batch of one.
  std::optional<LadderAdvice> ladder;
};

// A model on a device.
struct InstancePlan {
  std::string model;
  std::int64_t version = 0;
  std::string device;
  bool computes = true;
  std::optional<PlanCard> card;
  std::string unfit;  // why the model cannot be served there at all; empty where it can
  Bytes weights{0};
  Bytes at_rest{0};  // in tensors when nothing runs: the weights of all models, and libraries' workspaces
  Bytes budget{0};
  std::vector<PlanRow> rows;
  std::optional<TrafficPlan> traffic;
  std::vector<LengthCurve> calibration = {};  // what was measured at load

  // Whether every length that the model accepts can run there.
  bool fits() const;
};

struct PlanReport {
  std::vector<InstancePlan> plans;  // by device, then by model
  Bytes card_allowance{0};          // set aside on each card
  std::string traffic_file;
  std::optional<TrafficLengths> traffic;
};

std::string AsJson(const PlanReport& report);
std::string AsTable(const PlanReport& report);

}  // namespace headroom
