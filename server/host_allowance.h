// How much host memory requests get, once it is known what serves.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <vector>

#include "memory/host_budget.h"
#include "server/model_catalog.h"
#include "server/options.h"

namespace headroom {

// --host-memory-limit, or its default, and how it is divided. A third for the wire lets the largest messages through: one of n
// bytes takes n of the wire's part, and 2 n of the rest while it is parsed.
struct HostAllowance {
  Bytes limit{0};    // requests, queue, staging and replies together
  Bytes wire{0};     // of it, gRPC's: messages on their way; a quota that it keeps by ending calls, not exactly
  Bytes staging{0};  // of it, set aside: every worker's largest batch

  Bytes for_requests() const { return limit - wire; }  // what the budget has, staging included
};

// `available` is what the machine or container has left; read where there is no CPU device. FAILED_PRECONDITION, naming the option,
// where staging alone would take more than half of a limit that the options give; a default is made large enough.
absl::StatusOr<HostAllowance> AllowanceFor(const std::optional<Bytes>& asked, bool shares_device_memory, Bytes available,
                                           Bytes staging);

// The most that batches put together at once: for each device its workers times the largest batch that its budget has room for.
absl::StatusOr<Bytes> LargestStaging(const std::vector<CatalogEntry>& entries,
                                     const std::vector<std::unique_ptr<ServingDevice>>& devices, int workers_per_device);

// All of it: decides, logs, and opens `budget`, which the devices then count staging in.
absl::StatusOr<HostAllowance> OpenHostBudget(const std::optional<Bytes>& asked, const std::vector<CatalogEntry>& entries,
                                             const std::vector<std::unique_ptr<ServingDevice>>& devices, int workers_per_device,
                                             HostBudget& budget);

}  // namespace headroom
