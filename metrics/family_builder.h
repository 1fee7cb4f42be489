// A family of the catalog while it is being filled with figures that are kept elsewhere. For the metrics folder only.
#pragma once

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "metrics/metric_catalog.h"

namespace headroom {

class FamilyBuilder {
 public:
  explicit FamilyBuilder(Metric metric) : definition_(DefinitionOf(metric)) {
    family_.name = definition_.name;
    family_.help = definition_.help;
    switch (definition_.kind) {
      case MetricKind::kCounter: family_.type = prometheus::MetricType::Counter; break;
      case MetricKind::kGauge: family_.type = prometheus::MetricType::Gauge; break;
      case MetricKind::kHistogram: family_.type = prometheus::MetricType::Histogram; break;
    }
  }

  // Of a counter or a gauge. `labels`: the values, in the definition's order.
  void Add(const std::vector<std::string>& labels, std::int64_t value) { AddDouble(labels, static_cast<double>(value)); }
  // May be infinite.
  void AddDouble(const std::vector<std::string>& labels, double value) {
    prometheus::ClientMetric series = Labelled(labels);
    // Only the member of the family's type is written out.
    series.counter.value = series.gauge.value = value;
    family_.metric.push_back(std::move(series));
  }

  // Of a histogram: each value with how often it came, ascending.
  void AddHistogram(const std::vector<std::string>& labels, const std::vector<std::pair<std::int64_t, std::int64_t>>& values) {
    prometheus::ClientMetric series = Labelled(labels);
    prometheus::ClientMetric::Histogram& histogram = series.histogram;
    auto value = values.begin();
    const auto take_up_to = [&](double bound) {
      for (; value != values.end() && static_cast<double>(value->first) <= bound; ++value) {
        histogram.sample_count += static_cast<std::uint64_t>(value->second);
        histogram.sample_sum += static_cast<double>(value->first) * static_cast<double>(value->second);
      }
      histogram.bucket.push_back({histogram.sample_count, bound});
    };
    for (const double bound : definition_.bounds) take_up_to(bound);
    take_up_to(std::numeric_limits<double>::infinity());
    family_.metric.push_back(std::move(series));
  }

  // Nothing where it has no series.
  void AppendTo(std::vector<prometheus::MetricFamily>& families) && {
    if (!family_.metric.empty()) families.push_back(std::move(family_));
  }

 private:
  prometheus::ClientMetric Labelled(const std::vector<std::string>& labels) const {
    prometheus::ClientMetric series;
    for (std::size_t i = 0; i < labels.size(); ++i) series.label.push_back({definition_.labels.at(i), labels[i]});
    return series;
  }

  const MetricDefinition& definition_;
  prometheus::MetricFamily family_;
};

}  // namespace headroom
