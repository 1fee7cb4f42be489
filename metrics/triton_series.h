// What is counted, under Triton's names: for dashboards that exist. For the metrics folder only.
#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "metrics/model_totals.h"

namespace headroom {

struct VersionTotals {
  std::string model;
  std::string version;
  ModelTotals totals;
  std::optional<std::int64_t> pending;  // requests not yet answered; none for a version that is not served any more
};

// The families of the catalog whose names are Triton's, with a series for each.
std::vector<prometheus::MetricFamily> TritonFamilies(const std::vector<VersionTotals>& versions);

}  // namespace headroom
