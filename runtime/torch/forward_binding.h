// Which input of the configuration is which argument of `forward`, and which part of its result is which output.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <absl/status/statusor.h>

#include <vector>

#include "runtime/model_spec.h"

namespace headroom {

// Constant after construction.
class ForwardBinding {
 public:
  // By name; in order of the numbers where the inputs are called NAME__0, NAME__1, … and are not all arguments by name. An argument
  // with a default may have no input. INVALID_ARGUMENT naming the input or the argument that is left over, or that takes no tensor.
  // `forward` is the schema with `self`.
  static absl::StatusOr<ForwardBinding> Make(const c10::FunctionSchema& forward, const ModelSpec& spec);

  // The arguments after `self`; `inputs` are in the order of ModelSpec::inputs.
  std::vector<c10::IValue> Arguments(const std::vector<at::Tensor>& inputs) const;
  // The position after `self` of the argument that takes each input.
  const std::vector<std::size_t>& argument_of_input() const { return argument_of_input_; }

  // The tensors for ModelSpec::outputs, in that order, from a tensor, a tuple, a list or a dict. A dict and a named tuple bind by
  // key where an output is a key (then all must be), what is over is dropped; outputs called NAME__0, … take the part of that
  // number; otherwise the parts bind in order and there must be as many as outputs. INVALID_ARGUMENT naming what does not fit; a
  // tensor of a type that the wire does not know is such.
  absl::StatusOr<std::vector<at::Tensor>> Outputs(const c10::IValue& result) const;

 private:
  std::vector<c10::IValue> defaults_;  // one an argument; those that an input takes are None
  std::vector<std::size_t> argument_of_input_;
  std::vector<std::string> outputs_;
  std::vector<std::size_t> output_numbers_;  // of NAME__N outputs; empty where they are not all called so
};

}  // namespace headroom
