// What the metrics page asks for, read off the parts of a server.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "memory/host_budget.h"
#include "metrics/prometheus_observer.h"
#include "server/circuit_breaker.h"
#include "server/grpc_listener.h"
#include "server/ladder_report.h"
#include "server/lifecycle.h"
#include "server/memory_watch.h"
#include "server/model_catalog.h"
#include "server/readiness_watch.h"

namespace headroom {

// Where the figures come from; everything outlives whoever reads them.
struct StateParts {
  const std::vector<std::unique_ptr<ServingDevice>>& devices;
  const ModelCatalog& catalog;
  const Lifecycle& lifecycle;
  const ReadinessWatch& readiness;
  const MemoryWatch& memory_watch;
  const HostBudget& host;
  const CircuitBreaker& breaker;
  const GrpcListener& grpc;
  Clock& clock;
  LadderReport& ladders;
};

// A look at all of them, one after the other: the figures are of nearly the same moment. Any thread; asks each device for its
// memory.
ServerState ReadState(const StateParts& parts);

}  // namespace headroom
