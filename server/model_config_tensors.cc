// The checks of inputs and outputs.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "runtime/model_spec.h"
#include "server/model_config_validation.h"

namespace headroom {
namespace {

// Written out where it is whole, so that 1000000 does not read 1e+06.
std::string NumberText(double value) {
  if (std::trunc(value) == value && std::abs(value) < 1e15) return absl::StrCat(static_cast<std::int64_t>(value));
  return absl::StrFormat("%.15g", value);
}

// The smallest and the largest finite value of a type that a double can hold.
ValueRange LimitsOf(DataType type) {
  switch (type) {
    case DataType::kBool: return {0, 1};
    case DataType::kInt8: return {-128, 127};
    case DataType::kUint8: return {0, 255};
    case DataType::kInt16: return {-32768, 32767};
    case DataType::kInt32: return {-2147483648.0, 2147483647.0};
    case DataType::kInt64: return {-0x1p63, 0x1.fffffffffffffp62};
    case DataType::kFp16: return {-65504, 65504};
    case DataType::kBf16: return {-0x1.fep127, 0x1.fep127};
    case DataType::kFp32: return {std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max()};
    case DataType::kFp64: break;
  }
  return {std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max()};
}

bool HasSequenceAxis(const inference::ModelInput& input) {
  return std::find(input.dims().begin(), input.dims().end(), kSequenceAxis) != input.dims().end();
}

void ValidateName(const std::string& name, const std::string& field, std::set<std::string>& seen, ConfigReport& report) {
  if (name.empty()) {
    report.Fault(field, "is missing");
  } else if (name.size() > kMaxTensorName) {
    report.Fault(field, absl::StrCat("is longer than ", kMaxTensorName, " bytes"));
  } else if (std::any_of(name.begin(), name.end(), [](char c) { return (c >= 0 && c < ' ') || c == 0x7F; })) {
    report.Fault(field, absl::StrCat(DoubleQuoted(name), " holds a control character"));
  } else if (!seen.insert(name).second) {
    report.Fault(field, absl::StrCat(DoubleQuoted(name), " is there twice"));
  }
}

void ValidateType(inference::DataType type, const std::string& field, ConfigReport& report) {
  if (type == inference::TYPE_INVALID) {
    report.Fault(field, "is missing");
  } else if (inference::DataType_IsValid(type) && !ServedType(type).has_value()) {
    report.Fault(field, absl::StrCat(inference::DataType_Name(type),
                                     " is not supported: TorchScript has no strings, and no unsigned type but TYPE_UINT8"));
  }
}

template <class Dims>
void ValidateDims(const Dims& dims, const std::string& field, ConfigReport& report) {
  if (dims.empty()) report.Fault(field, "is missing");
  if (dims.size() > kMaxDimensions) {
    report.Fault(field, absl::StrCat(dims.size(), " dimensions are more than ", kMaxDimensions));
    return;
  }
  for (int i = 0; i < dims.size(); ++i) {
    if (dims[i] < 1 && dims[i] != kSequenceAxis) {
      report.Fault(absl::StrCat(field, "[", i, "]"), absl::StrCat(dims[i], " is neither -1 nor at least 1"));
    }
  }
  if (std::count(dims.begin(), dims.end(), kSequenceAxis) > 1) {
    report.Fault(field, "has more than one -1; a tensor has one sequence axis at most");
  }
}

// Checks that a full batch of the tensor at the longest length is a number of bytes that can be counted.
template <class Tensor>
void ValidateSize(const inference::ModelConfig& config, const Tensor& tensor, const std::string& field, ConfigReport& report) {
  const std::optional<DataType> type = ServedType(tensor.data_type());
  std::vector<std::int64_t> factors = {type ? SizeOf(*type) : 1,
                                       std::clamp<std::int64_t>(config.max_batch_size(), 1, kMaxBatchRows)};
  for (const std::int64_t dim : tensor.dims()) {
    factors.push_back(dim == kSequenceAxis ? std::clamp<std::int64_t>(LongestLength(config), 1, kMaxLength)
                                           : std::max<std::int64_t>(dim, 1));
  }
  if (!CheckedProduct(factors).ok()) report.Fault(field, "a full batch would be more bytes than can be counted");
}

void ValidateRole(const inference::ModelInput& input, const std::string& field, ConfigReport& report) {
  if (input.role() == inference::ModelInput::TOKENS && !HasSequenceAxis(input)) {
    report.Fault(field + ".role", "TOKENS gives the row's length, but the input has no -1 dimension");
  }
  if (input.role() != inference::ModelInput::MASK) return;
  if (input.dims_size() != 1 || input.dims(0) != kSequenceAxis) {
    report.Fault(field + ".role", "a MASK has the dims [ -1 ] and no others");
  }
}

std::string RangeText(const ValueRange& range) {
  return absl::StrCat("[", NumberText(range.min), ", ", NumberText(range.max), "]");
}

// The range to hold values against, or nothing where there is none or it is itself at fault.
std::optional<ValueRange> ValidateValueRange(const inference::ModelInput& input, DataType type, const std::string& field,
                                             ConfigReport& report) {
  if (!input.has_value_range()) return std::nullopt;
  if (!input.value_range().has_min() || !input.value_range().has_max()) {
    report.Fault(field, absl::StrCat(input.value_range().has_min() ? "max" : "min", " is missing"));
    return std::nullopt;
  }
  const ValueRange range = {input.value_range().min(), input.value_range().max()};
  if (std::isnan(range.min) || std::isnan(range.max)) {
    report.Fault(field, "a bound is not a number");
    return std::nullopt;
  }
  if (range.min > range.max) {
    report.Fault(field, absl::StrCat("min ", NumberText(range.min), " is more than max ", NumberText(range.max)));
    return std::nullopt;
  }
  double low = std::max(range.min, LimitsOf(type).min);
  double high = std::min(range.max, LimitsOf(type).max);
  if (!IsFloatingPoint(type)) {
    low = std::ceil(low);
    high = std::floor(high);
  }
  if (low > high) {
    report.Fault(field, absl::StrCat(RangeText(range), " holds no ", NameOf(type), " value"));
    return std::nullopt;
  }
  return range;
}

// Padding goes to the model as any other value does, so it must be one that clients could send.
void ValidatePadValue(const inference::ModelInput& input, DataType type, const std::optional<ValueRange>& range,
                      const std::string& field, ConfigReport& report) {
  const bool given = input.has_pad_value();
  const double value = input.pad_value();
  const ValueRange limits = LimitsOf(type);
  if (!given && !HasSequenceAxis(input)) return;  // nothing is ever padded
  if (!std::isfinite(value)) {
    report.Fault(field, "is not a finite number");
  } else if (!IsFloatingPoint(type) && std::trunc(value) != value) {
    report.Fault(field, absl::StrCat(NumberText(value), " is no whole number, as ", NameOf(type), " needs"));
  } else if (value < limits.min || value > limits.max) {
    report.Fault(field, absl::StrCat(NumberText(value), " is no ", NameOf(type), " value"));
  } else if (range && (value < range->min || value > range->max)) {
    report.Fault(field, absl::StrCat(given ? "" : "is missing, and its default ", NumberText(value),
                                     " is outside the input's value_range ", RangeText(*range)));
  }
}

// A mask's values are known: 1 for a row's own places and 0 for padding.
void ValidateMaskValues(const inference::ModelInput& input, const std::optional<ValueRange>& range, const std::string& field,
                        ConfigReport& report) {
  if (range && (range->min > 0 || range->max < 1)) {
    report.Fault(field + ".value_range", absl::StrCat(RangeText(*range), " does not hold a MASK's values, 0 and 1"));
  }
  if (input.pad_value() != 0) {
    report.Fault(field + ".pad_value", absl::StrCat(NumberText(input.pad_value()), " is not 0, which a MASK is padded with"));
  }
}

void ValidateInput(const inference::ModelConfig& config, int index, std::set<std::string>& names, ConfigReport& report) {
  const inference::ModelInput& input = config.input(index);
  const std::string field = absl::StrCat("input[", index, "]");
  ValidateName(input.name(), field + ".name", names, report);
  ValidateType(input.data_type(), field + ".data_type", report);
  ValidateDims(input.dims(), field + ".dims", report);
  ValidateSize(config, input, field + ".dims", report);
  ValidateRole(input, field, report);
  const bool is_mask = input.role() == inference::ModelInput::MASK;
  if (const std::optional<DataType> type = ServedType(input.data_type())) {
    const std::optional<ValueRange> range = ValidateValueRange(input, *type, field + ".value_range", report);
    if (is_mask) {
      ValidateMaskValues(input, range, field, report);
    } else {
      ValidatePadValue(input, *type, range, field + ".pad_value", report);
    }
  }
  if (!input.optional() || is_mask) return;
  if (index == LengthInput(config)) {
    report.Fault(field + ".optional", "the input that gives the row's length cannot be left out");
  } else if (!input.has_pad_value()) {
    report.Fault(field + ".optional", "needs a pad_value to stand in for the input, or the role MASK");
  }
}

void ValidateOutput(const inference::ModelConfig& config, int index, std::set<std::string>& names, ConfigReport& report) {
  const inference::ModelOutput& output = config.output(index);
  const std::string field = absl::StrCat("output[", index, "]");
  ValidateName(output.name(), field + ".name", names, report);
  ValidateType(output.data_type(), field + ".data_type", report);
  ValidateDims(output.dims(), field + ".dims", report);
  ValidateSize(config, output, field + ".dims", report);
  const bool has_axis = std::find(output.dims().begin(), output.dims().end(), kSequenceAxis) != output.dims().end();
  const bool inputs_have_one = std::any_of(config.input().begin(), config.input().end(), HasSequenceAxis);
  if (has_axis && !inputs_have_one) {
    report.Fault(field + ".dims", "has a -1, but no input has one that it could follow");
  }
}

// What can only be said of all inputs together.
void ValidateInputsTogether(const inference::ModelConfig& config, ConfigReport& report) {
  for (const inference::ModelInput::Role role : {inference::ModelInput::TOKENS, inference::ModelInput::MASK}) {
    int first = -1;
    for (int i = 0; i < config.input_size(); ++i) {
      if (config.input(i).role() != role) continue;
      if (first >= 0) {
        report.Fault(absl::StrCat("input[", i, "].role"),
                     absl::StrCat("is ", inference::ModelInput::Role_Name(role), ", as input[", first, "] is already"));
      }
      first = first < 0 ? i : first;
      if (role == inference::ModelInput::MASK && LengthInput(config) < 0) {
        report.Fault(absl::StrCat("input[", i, "].role"), "a MASK needs another input with a -1 dimension");
      }
    }
  }
  if (LengthInput(config) >= 0 || config.input().empty()) return;
  if (std::all_of(config.input().begin(), config.input().end(), [](const auto& input) { return input.optional(); })) {
    report.Fault("input", "at least one must not be optional, or a request has no size");
  }
}

}  // namespace

std::optional<DataType> ServedType(inference::DataType type) {
  switch (type) {
    case inference::TYPE_BOOL: return DataType::kBool;
    case inference::TYPE_UINT8: return DataType::kUint8;
    case inference::TYPE_INT8: return DataType::kInt8;
    case inference::TYPE_INT16: return DataType::kInt16;
    case inference::TYPE_INT32: return DataType::kInt32;
    case inference::TYPE_INT64: return DataType::kInt64;
    case inference::TYPE_FP16: return DataType::kFp16;
    case inference::TYPE_BF16: return DataType::kBf16;
    case inference::TYPE_FP32: return DataType::kFp32;
    case inference::TYPE_FP64: return DataType::kFp64;
    default: return std::nullopt;
  }
}

int LengthInput(const inference::ModelConfig& config) {
  int first = -1;
  for (int i = 0; i < config.input_size(); ++i) {
    const inference::ModelInput& input = config.input(i);
    if (input.role() == inference::ModelInput::MASK || !HasSequenceAxis(input)) continue;
    if (input.role() == inference::ModelInput::TOKENS) return i;
    if (first < 0) first = i;
  }
  return first;
}

void ValidateTensors(const inference::ModelConfig& config, ConfigReport& report) {
  if (config.input().empty()) report.Fault("input", "is missing: a model has at least one");
  if (config.output().empty()) report.Fault("output", "is missing: a model has at least one");
  if (config.input_size() > kMaxTensors)
    report.Fault("input", absl::StrCat(config.input_size(), " inputs are more than ", kMaxTensors));
  if (config.output_size() > kMaxTensors)
    report.Fault("output", absl::StrCat(config.output_size(), " outputs are more than ", kMaxTensors));
  std::set<std::string> inputs;
  for (int i = 0; i < std::min(config.input_size(), kMaxTensors); ++i) ValidateInput(config, i, inputs, report);
  std::set<std::string> outputs;
  for (int i = 0; i < std::min(config.output_size(), kMaxTensors); ++i) ValidateOutput(config, i, outputs, report);
  ValidateInputsTogether(config, report);
}

}  // namespace headroom
