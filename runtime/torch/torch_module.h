// A TorchScript module on a device, loaded, checked, frozen and bound to its configuration.
#pragma once

#include <ATen/core/Tensor.h>
#include <absl/status/statusor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/device.h"
#include "runtime/model_spec.h"
#include "runtime/torch/forward_binding.h"

namespace torch::jit {
struct Module;
}

namespace headroom {

// Constant after construction, so that any number of threads may run it at once.
class TorchModule final : public LoadedModel {
 public:
  // INVALID_ARGUMENT where the file is no usable module for `spec` on `device`, RESOURCE_EXHAUSTED where an allocation failed;
  // texts name no path. Devices that the graph names are rewritten to `device`, and logged; from a GPU to the CPU only where
  // `spec` says so. `before_load` is called when the file is about to be handed to libtorch. Throws nothing.
  static absl::StatusOr<std::shared_ptr<const TorchModule>> Load(const std::filesystem::path& file, const ModelSpec& spec,
                                                                 c10::Device device, const std::function<void()>& before_load);
  ~TorchModule() override;

  // The same module computing in `precision`, where it was loaded for a spec whose precision converts(); of a converted one nothing
  // more is made. `half` is what autocast computes in on the device. RESOURCE_EXHAUSTED where the weights do not fit beside this
  // one's. Under InferenceMode only; throws nothing.
  absl::StatusOr<std::shared_ptr<const TorchModule>> Convert(Precision precision, c10::ScalarType half) const;
  Precision precision() const override { return precision_; }

  c10::Device device() const { return device_; }

  // Runs forward on `inputs`, one for each of ModelSpec::inputs, and gives one tensor for each of ModelSpec::outputs. In a
  // converted module floating inputs are converted first, and floating outputs are given in their declared types. INVALID_ARGUMENT
  // where the result does not bind to the outputs. Throws what libtorch throws. Under InferenceMode only.
  absl::StatusOr<std::vector<at::Tensor>> Forward(const std::vector<at::Tensor>& inputs) const;

  std::size_t input_count() const;
  // True where forward may write to this input in place, so that it must not be given the caller's own memory.
  bool writes_input(std::size_t index) const;

 private:
  struct Parts;  // what needs libtorch's large headers
  TorchModule(c10::Device device, Precision precision, std::unique_ptr<const Parts> parts);
  // `module` is not frozen yet; `source` is what others may be converted from.
  static std::shared_ptr<const TorchModule> Make(const torch::jit::Module& module, ForwardBinding binding, ModelSpec spec,
                                                 c10::Device device, Precision precision, c10::ScalarType half,
                                                 std::optional<torch::jit::Module> source);

  const c10::Device device_;
  const Precision precision_;
  const std::unique_ptr<const Parts> parts_;
};

}  // namespace headroom
