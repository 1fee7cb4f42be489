// A family of the catalog while it is being filled with figures that are kept elsewhere. For the metrics folder only.
#pragma once

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "metrics/metric_catalog.h"

namespace headroom {

class FamilyBuilder {
 public:
  // Of a counter or a gauge.
  explicit FamilyBuilder(Metric metric) : definition_(DefinitionOf(metric)) {
    family_.name = definition_.name;
    family_.help = definition_.help;
    family_.type = definition_.kind == MetricKind::kCounter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
  }

  // `labels`: the values, in the definition's order.
  void Add(const std::vector<std::string>& labels, std::int64_t value) { AddDouble(labels, static_cast<double>(value)); }
  // May be infinite.
  void AddDouble(const std::vector<std::string>& labels, double value) {
    prometheus::ClientMetric series;
    for (std::size_t i = 0; i < labels.size(); ++i) series.label.push_back({definition_.labels.at(i), labels[i]});
    // Only the member of the family's type is written out.
    series.counter.value = series.gauge.value = value;
    family_.metric.push_back(std::move(series));
  }

  // Nothing where it has no series.
  void AppendTo(std::vector<prometheus::MetricFamily>& families) && {
    if (!family_.metric.empty()) families.push_back(std::move(family_));
  }

 private:
  const MetricDefinition& definition_;
  prometheus::MetricFamily family_;
};

}  // namespace headroom
