// A TorchScript module in another number format.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>

#include <optional>

namespace headroom {

// A module with the code of `module` and its parameters and buffers, the floating ones as `type` where that is given: what
// nn.Module.to(type) does, but `module` keeps its own. Tensors that are not converted are the same, and those that several
// submodules share are shared again. What a trace has written down as a constant, and a dtype that its code names, stay.
//
// The code is a copy, too: all that is cloned or frozen from a module joins its compilation unit, and lives there, constants and
// so weights included, until the last of them is gone. The copy has a unit of its own. Throws what libtorch throws.
torch::jit::Module Rebuilt(const torch::jit::Module& module, c10::Device device, std::optional<c10::ScalarType> type);

// Converts, in a frozen method, the FP32 constants that autocast would convert in each call: the weights of products and
// convolutions. autocast remembers conversions of weights that require gradients, and those of a module that serves never do. What
// nothing else needs in FP32 is let go of. Before the method's first call; throws what libtorch throws.
void ConvertAutocastWeights(torch::jit::Method& method, c10::ScalarType type);

// Autocast to `type` on one kind of device, for the calling thread, until it is destroyed; then as it was before.
//
// TorchScript inserts conversions of its own into the plan that a method's first call compiles while autocast is on, and keeps
// them. So a method is always called with autocast, or never.
class AutocastScope {
 public:
  AutocastScope(c10::DeviceType device, c10::ScalarType type);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const c10::DeviceType device_;
  const bool was_enabled_;
  const c10::ScalarType was_type_;
  const bool was_caching_;
};

}  // namespace headroom
