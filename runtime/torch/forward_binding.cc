#include "runtime/torch/forward_binding.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "runtime/torch/tensor_view.h"

namespace headroom {
namespace {

// The N of each NAME__N; empty where a name is not so.
std::vector<std::size_t> TrailingNumbers(const std::vector<std::string>& names) {
  std::vector<std::size_t> numbers;
  for (const std::string& name : names) {
    const std::size_t mark = name.rfind("__");
    std::uint32_t number = 0;
    if (mark == std::string::npos || !absl::SimpleAtoi(name.substr(mark + 2), &number)) return {};
    numbers.push_back(number);
  }
  return numbers;
}

template <class Specs>
std::vector<std::string> NamesOf(const Specs& specs) {
  std::vector<std::string> names;
  for (const auto& spec : specs) names.push_back(spec.name);
  return names;
}

// The index of each of `wanted` in `names`, or nothing where one is missing.
std::optional<std::vector<std::size_t>> Find(const std::vector<std::string>& wanted, const std::vector<std::string>& names) {
  std::vector<std::size_t> found;
  for (const std::string& name : wanted) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) return std::nullopt;
    found.push_back(static_cast<std::size_t>(at - names.begin()));
  }
  return found;
}

// Where some of `wanted` are in `names`, so that names are what binds: one that is not. Null otherwise.
const std::string* MissingKey(const std::vector<std::string>& wanted, const std::vector<std::string>& names) {
  const auto in_names = [&](const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  if (std::none_of(wanted.begin(), wanted.end(), in_names)) return nullptr;
  const auto missing = std::find_if_not(wanted.begin(), wanted.end(), in_names);
  return missing == wanted.end() ? nullptr : &*missing;
}

std::string Signature(const std::vector<std::string>& arguments) {
  return absl::StrCat("forward(", absl::StrJoin(arguments, ", "), ")");
}

absl::StatusOr<std::vector<std::size_t>> BindInputs(const std::vector<std::string>& inputs,
                                                    const std::vector<std::string>& arguments) {
  if (auto by_name = Find(inputs, arguments)) return *std::move(by_name);
  const std::vector<std::size_t> numbers = TrailingNumbers(inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (numbers.empty()) {
      if (std::find(arguments.begin(), arguments.end(), inputs[i]) != arguments.end()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("input '", inputs[i], "' is not an argument of the module's ", Signature(arguments)));
    }
    if (numbers[i] >= arguments.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", inputs[i], "' is beyond the arguments of the module's ", Signature(arguments)));
    }
    if (std::count(numbers.begin(), numbers.end(), numbers[i]) > 1) {
      return absl::InvalidArgumentError(absl::StrCat("input '", inputs[i], "' has the number of another input"));
    }
  }
  return numbers;
}

// The parts of a module's result, with their names where it has any.
struct Parts {
  std::vector<c10::IValue> values;
  std::vector<std::string> names;
};

Parts PartsOfTuple(const c10::IValue& result) {
  Parts parts;
  for (const auto& element : result.toTupleRef().elements()) parts.values.push_back(element);
  const auto type = result.type()->cast<c10::TupleType>();
  if (type != nullptr && type->schema() != nullptr) {
    for (const auto& argument : type->schema()->arguments()) parts.names.push_back(argument.name());
  }
  return parts;
}

Parts PartsOf(const c10::IValue& result) {
  Parts parts;
  if (result.isTuple()) return PartsOfTuple(result);
  if (result.isGenericDict()) {
    for (const auto& entry : result.toGenericDict()) {
      parts.names.push_back(entry.key().isString() ? entry.key().toStringRef() : "");
      parts.values.push_back(entry.value());
    }
  } else if (result.isList()) {
    for (const auto& element : result.toListRef()) parts.values.push_back(element);
  } else {
    parts.values.push_back(result);
  }
  return parts;
}

}  // namespace

absl::StatusOr<ForwardBinding> ForwardBinding::Make(const c10::FunctionSchema& forward, const ModelSpec& spec) {
  const std::vector<c10::Argument> declared(forward.arguments().begin() + 1, forward.arguments().end());
  std::vector<std::string> names;
  for (const auto& argument : declared) names.push_back(argument.name());

  ForwardBinding binding;
  ASSIGN_OR_RETURN(binding.argument_of_input_, BindInputs(NamesOf(spec.inputs), names));
  binding.outputs_ = NamesOf(spec.outputs);
  binding.output_numbers_ = TrailingNumbers(binding.outputs_);
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const c10::Argument& argument = declared[i];
    const auto& bound = binding.argument_of_input_;
    const auto input = std::find(bound.begin(), bound.end(), i);
    if (input == bound.end()) {
      if (!argument.default_value().has_value()) {
        return absl::InvalidArgumentError(absl::StrCat("argument '", argument.name(), "' of the module's ", Signature(names),
                                                       " has no input in the configuration"));
      }
      binding.defaults_.push_back(*argument.default_value());
      continue;
    }
    if (!c10::TensorType::get()->isSubtypeOf(*argument.type())) {
      return absl::InvalidArgumentError(absl::StrCat("input '", spec.inputs[static_cast<std::size_t>(input - bound.begin())].name,
                                                     "': argument '", argument.name(), "' of the module's forward is of type ",
                                                     argument.type()->str(), ", not a tensor"));
    }
    binding.defaults_.emplace_back();
  }
  return binding;
}

std::vector<c10::IValue> ForwardBinding::Arguments(const std::vector<at::Tensor>& inputs) const {
  std::vector<c10::IValue> arguments = defaults_;
  for (std::size_t i = 0; i < inputs.size(); ++i) arguments[argument_of_input_[i]] = inputs[i];
  return arguments;
}

absl::StatusOr<std::vector<at::Tensor>> ForwardBinding::Outputs(const c10::IValue& result) const {
  const Parts parts = PartsOf(result);
  std::vector<std::size_t> order(outputs_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (auto by_name = Find(outputs_, parts.names)) {
    order = *std::move(by_name);
  } else if (const std::string* missing = MissingKey(outputs_, parts.names)) {
    return absl::InvalidArgumentError(
        absl::StrCat("output '", *missing, "' is not among the module's: ", absl::StrJoin(parts.names, ", ")));
  } else if (!output_numbers_.empty()) {
    order = output_numbers_;
  } else if (parts.values.size() != outputs_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the module returns ", parts.values.size(), " outputs, the configuration has ",
                                                   outputs_.size(), " (", absl::StrJoin(outputs_, ", "), ")"));
  }
  std::vector<at::Tensor> outputs;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] >= parts.values.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("output '", outputs_[i], "': the module returns ", parts.values.size(), " outputs"));
    }
    const c10::IValue& part = parts.values[order[i]];
    if (!part.isTensor() || !part.toTensor().defined()) {
      return absl::InvalidArgumentError(absl::StrCat("output '", outputs_[i], "' is a ", part.tagKind(), ", not a tensor"));
    }
    if (const auto type = part.toTensor().scalar_type(); !DataTypeOf(type).has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("output '", outputs_[i], "' has elements of type ", c10::toString(type), ", which no reply can carry"));
    }
    outputs.push_back(part.toTensor());
  }
  return outputs;
}

}  // namespace headroom
