// The devices that the options ask for, each with its budget.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <vector>

#include "batching/served_model.h"
#include "server/options.h"

namespace headroom {

// Puts something around a device, or gives it back as it is.
using WrapDevice = std::function<std::unique_ptr<Device>(std::unique_ptr<Device>)>;

// At least one. Sets up libtorch, so to be called once a process. An error names the option that asks for what is not there.
absl::StatusOr<std::vector<std::unique_ptr<ServingDevice>>> MakeDevices(const ModelOptions& options, const WrapDevice& wrap);

// How many threads runs on the CPU may have, of so many `processors`.
ThreadLimits ThreadLimitsOf(const ModelOptions& options, int processors);

inline constexpr int kDeviceLostExit = 3;

// Where one of the devices does not answer any more, reports `fault`, which came of it, and ends the process at once with
// kDeviceLostExit: destructors would call into the lost device's driver, and hang or crash. Otherwise does nothing.
void EndIfDeviceLost(const std::vector<std::unique_ptr<ServingDevice>>& devices, const absl::Status& fault);

}  // namespace headroom
