#include "server/device_set.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "base/status_macros.h"
#include "runtime/torch/torch_device.h"
#include "server/fault_report.h"
#include "server/host_memory.h"

namespace headroom {
namespace {

absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeBareDevices(const ModelOptions& options) {
  std::vector<std::unique_ptr<Device>> devices;
  const DeviceSelection& selection = options.device;
  const bool cuda =
      selection.kind == DeviceSelection::Kind::kCuda || (selection.kind == DeviceSelection::Kind::kAuto && CudaDeviceCount() > 0);
  if (!cuda) {
    Bytes limit{0};
    if (options.memory_limit) {
      limit = *options.memory_limit;
    } else {
      ASSIGN_OR_RETURN(limit, AvailableHostMemory());
    }
    ASSIGN_OR_RETURN(std::unique_ptr<Device> cpu, MakeCpuDevice(limit));
    devices.push_back(std::move(cpu));
    return devices;
  }
  std::vector<int> indices = selection.cuda_indices;
  // At least the first: where there is none, making it says why.
  for (int i = 0; selection.cuda_indices.empty() && (i < CudaDeviceCount() || i == 0); ++i) indices.push_back(i);
  for (const int index : indices) {
    ASSIGN_OR_RETURN(std::unique_ptr<Device> device, MakeCudaDevice(index, options.memory_limit));
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

ThreadLimits ThreadLimitsOf(const ModelOptions& options, int processors) {
  // Beyond a few threads an operation on one batch gains little, and each worker's thread comes and goes with a pool of them.
  constexpr int kMostByDefault = 8;
  const int wanted = options.max_intra_op_threads > 0 ? options.max_intra_op_threads : std::min(processors, kMostByDefault);
  return {.processors = processors, .least = options.intra_op_threads, .most = std::max(options.intra_op_threads, wanted)};
}

void EndIfDeviceLost(const std::vector<std::unique_ptr<ServingDevice>>& devices, const absl::Status& fault) {
  const bool well = std::all_of(devices.begin(), devices.end(), [](const auto& on) { return on->device->Memory().ok(); });
  if (well) return;
  ReportFault(fault);
  std::_Exit(kDeviceLostExit);
}

absl::StatusOr<std::vector<std::unique_ptr<ServingDevice>>> MakeDevices(const ModelOptions& options, const WrapDevice& wrap) {
  RETURN_IF_ERROR(InitializeTorch({.intra_op_threads = options.intra_op_threads}));
  auto bare = MakeBareDevices(options);
  if (!bare.ok()) {
    return absl::Status(bare.status().code(),
                        absl::StrCat("--device ", ToString(options.device), ": ", std::string(bare.status().message())));
  }
  std::vector<std::unique_ptr<ServingDevice>> devices;
  for (std::unique_ptr<Device>& device : *bare) {
    if (!device->computes()) {
      Log(LogLevel::kWarning, "this device is dry: it computes nothing, and every answer is meaningless",
          {{"device", device->name()}});
    }
    auto serving = std::make_unique<ServingDevice>();
    serving->device = wrap ? wrap(std::move(device)) : std::move(device);
    serving->budget = std::make_unique<MemoryBudget>(*serving->device, options.memory_fraction);
    if (serving->device->kind() == DeviceKind::kCpu) serving->threads.SetLimits(ThreadLimitsOf(options, UsableProcessors()));
    devices.push_back(std::move(serving));
  }
  return devices;
}

}  // namespace headroom
