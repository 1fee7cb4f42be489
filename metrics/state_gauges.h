// Turns the server's state into gauges. For the metrics folder only: outside it nothing knows the Prometheus library.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "metrics/prometheus_observer.h"

namespace headroom {

// The families of the catalog that show `state`, each with the series that the state tells of; none without any.
std::vector<prometheus::MetricFamily> GaugesOf(const ServerState& state);

}  // namespace headroom
