// Devices that are written into a module's graph: traced code often carries the device of the machine where it was traced.
#pragma once

#include <absl/status/status.h>
#include <c10/core/Device.h>

#include <string>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace headroom {

// One line of a module's source that named another device.
struct RewrittenDevice {
  std::string operation;  // "aten::zeros"
  std::string place;      // "line 3, "y = torch.zeros([1], device='cuda:0')"", or empty where the file does not know
  std::string device;     // what it named
  int count = 0;          // in how many places of the graph: a submodule that is called twice has two
};

// Both functions inline `forward`, so that the code of submodules is seen where it is called. They are to be called before
// freezing, which folds what hangs on constants, and before the first run, and may throw what libtorch throws.

// Makes all that `forward` can reach, in every branch, name `device` instead of any other: constants and attributes, devices made
// from words, x.cpu() and x.cuda(). Left as they are: devices that are only compared, and lengths that pack_padded_sequence wants
// on the CPU.
std::vector<RewrittenDevice> RewriteBakedDevices(const torch::jit::Module& module, c10::Device device);

// OK where nothing that `forward` can reach names another device than `device`, but for what RewriteBakedDevices leaves; "cuda"
// without an index means the current device and is any CUDA device. INVALID_ARGUMENT naming the device, the operation that takes it
// and its source line.
absl::Status CheckBakedDevices(const torch::jit::Module& module, c10::Device device);

}  // namespace headroom
