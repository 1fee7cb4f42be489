// Finds devices that are written into a module's graph: traced code often carries the device of the machine where it was traced.
#pragma once

#include <absl/status/status.h>
#include <c10/core/Device.h>

namespace torch::jit {
struct Module;
}

namespace headroom {

// OK where nothing that `forward` can reach, in every branch, names another device than `device`; "cuda" without an index means the
// current device and is any CUDA device. INVALID_ARGUMENT naming the device, the operation that takes it and its source line.
// Devices that are only compared do no harm. To be asked before freezing, which folds what hangs on constants. May throw what
// libtorch throws.
absl::Status CheckBakedDevices(const torch::jit::Module& module, c10::Device device);

}  // namespace headroom
