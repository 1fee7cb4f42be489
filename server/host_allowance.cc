#include "server/host_allowance.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "base/log.h"
#include "base/status_macros.h"
#include "server/host_memory.h"
#include "server/model_loader.h"

namespace headroom {

absl::StatusOr<HostAllowance> AllowanceFor(const std::optional<Bytes>& asked, bool shares_device_memory, Bytes available,
                                           Bytes staging) {
  HostAllowance allowance;
  allowance.limit = asked ? *asked : std::max(DefaultHostLimit(shares_device_memory, available), Scale(staging, 2));
  if (Scale(staging, 2) > allowance.limit) {
    return absl::FailedPreconditionError(absl::StrCat("--host-memory-limit ", ToString(allowance.limit),
                                                      " is too little: the workers' largest batches alone are put together in ",
                                                      ToString(staging), ", and requests need as much"));
  }
  allowance.wire = {allowance.limit.count / 3};
  allowance.staging = staging;
  return allowance;
}

absl::StatusOr<Bytes> LargestStaging(const std::vector<CatalogEntry>& entries,
                                     const std::vector<std::unique_ptr<ServingDevice>>& devices, int workers_per_device) {
  Bytes total{0};
  for (const auto& device : devices) {
    ASSIGN_OR_RETURN(const BudgetSnapshot memory, device->budget->Snapshot());
    Bytes largest{0};
    for (const CatalogEntry& entry : entries) {
      const ModelInstance* const instance = entry.model->InstanceOn(*device);
      if (instance == nullptr) continue;
      for (const auto& length : instance->ladder.ShapesToCalibrate().lengths) {
        const std::int64_t rows = std::min(length.max_rows, LargestBatch(*entry.model, *instance, length.length, memory.budget));
        largest = std::max(largest, StagingBytes(*entry.model->spec, {rows, length.length}, device->device->kind()));
      }
    }
    total += Scale(largest, workers_per_device);
  }
  return total;
}

absl::StatusOr<HostAllowance> OpenHostBudget(const std::optional<Bytes>& asked, const std::vector<CatalogEntry>& entries,
                                             const std::vector<std::unique_ptr<ServingDevice>>& devices, int workers_per_device,
                                             HostBudget& budget) {
  ASSIGN_OR_RETURN(const Bytes staging, LargestStaging(entries, devices, workers_per_device));
  const Device& first = *devices.front()->device;
  const bool shares = first.kind() == DeviceKind::kCpu;
  Bytes available{0};
  if (shares) {
    ASSIGN_OR_RETURN(const DeviceMemory memory, first.Memory());
    available = memory.total;
  } else if (!asked) {
    ASSIGN_OR_RETURN(available, AvailableHostMemory());
  }
  ASSIGN_OR_RETURN(const HostAllowance allowance, AllowanceFor(asked, shares, available, staging));
  budget.Open(allowance.for_requests(), allowance.staging);
  for (const auto& device : devices) device->host = &budget;
  Log(LogLevel::kInfo, "host memory for requests",
      {{"limit", ToString(allowance.limit)}, {"wire", ToString(allowance.wire)}, {"staging", ToString(allowance.staging)}});
  return allowance;
}

}  // namespace headroom
