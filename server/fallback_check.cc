#include "server/fallback_check.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <optional>
#include <string>

namespace headroom {
namespace {

std::int64_t LongestRow(const ModelSpec& spec) {
  if (!spec.variable_length()) return 0;
  return spec.sequence.tiers.empty() ? spec.sequence.buckets.back() : spec.sequence.tiers.back().up_to;
}

template <class Tensor>
const Tensor* Named(const std::vector<Tensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

bool TakesAllOf(const std::optional<ValueRange>& fallback, const std::optional<ValueRange>& model) {
  if (!fallback) return true;
  return model && fallback->min <= model->min && fallback->max >= model->max;
}

// Why `fallback` cannot answer what is asked of `model`; empty where it can.
std::string WhyNot(const ModelSpec& model, const ModelSpec& fallback) {
  if (model.has_batch_dimension() != fallback.has_batch_dimension()) return "one of the two has no batch dimension";
  for (const InputSpec& input : model.inputs) {
    const InputSpec* const other = Named(fallback.inputs, input.name);
    if (other == nullptr || other->type != input.type || other->dims != input.dims || other->role != input.role) {
      return absl::StrCat("it has no such input as \"", input.name, "\"");
    }
    if (input.optional && !other->optional) return absl::StrCat("its input \"", input.name, "\" is not optional");
    if (!TakesAllOf(other->value_range, input.value_range)) {
      return absl::StrCat("its input \"", input.name, "\" has a smaller value_range");
    }
  }
  for (const InputSpec& input : fallback.inputs) {
    if (!input.optional && Named(model.inputs, input.name) == nullptr) {
      return absl::StrCat("it needs an input \"", input.name, "\"");
    }
  }
  for (const OutputSpec& output : model.outputs) {
    const OutputSpec* const other = Named(fallback.outputs, output.name);
    if (other == nullptr || other->type != output.type || other->dims != output.dims) {
      return absl::StrCat("it has no such output as \"", output.name, "\"");
    }
  }
  // A request that names no outputs would get them.
  if (fallback.outputs.size() != model.outputs.size()) return "it has other outputs besides";
  if (LongestRow(fallback) < LongestRow(model)) {
    return absl::StrCat("its longest row is ", LongestRow(fallback), ", that of the model ", LongestRow(model));
  }
  return "";
}

}  // namespace

absl::Status CheckFallbackModels(const std::vector<RepositoryModel>& models) {
  std::vector<std::string> faults;
  for (const RepositoryModel& model : models) {
    const std::string& name = model.spec.fallback_model;
    if (name.empty()) continue;
    const RepositoryModel* const fallback = Named(models, name);
    const std::string why = fallback == nullptr            ? "there is no such model in the repository"
                            : fallback->name == model.name ? "it is the model itself"
                                                           : WhyNot(model.spec, fallback->spec);
    if (!why.empty()) {
      faults.push_back(
          absl::StrCat("model '", model.name, "': config.pbtxt: memory.fallback_model: \"", name, "\" cannot stand in: ", why));
    }
  }
  return faults.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
}

}  // namespace headroom
