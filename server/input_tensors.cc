#include "server/input_tensors.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/status_macros.h"
#include "server/client_text.h"

namespace headroom {
namespace {

using InputMessage = inference::ModelInferRequest::InferInputTensor;

template <class... Parts>
absl::Status Invalid(const std::string& input, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("input ", Quoted(input), ": ", parts...));
}

int IndexOfInput(const ModelSpec& spec, const std::string& name) {
  const auto found = std::find_if(spec.inputs.begin(), spec.inputs.end(), [&](const InputSpec& i) { return i.name == name; });
  return found == spec.inputs.end() ? -1 : static_cast<int>(found - spec.inputs.begin());
}

std::vector<std::int64_t> DeclaredShape(const ModelSpec& spec, const InputSpec& input) {
  std::vector<std::int64_t> shape;
  if (spec.has_batch_dimension()) shape.push_back(-1);
  shape.insert(shape.end(), input.dims.begin(), input.dims.end());
  return shape;
}

// The number of rows and the length, as the inputs seen so far agree on them.
class CommonShape {
 public:
  CommonShape(const ModelSpec& spec, const RequestLimits& limits) : spec_(spec), limits_(limits) {}

  // Takes in the shape of one input.
  absl::Status Add(const InputSpec& input, const InputMessage& message) {
    const std::vector<std::int64_t> declared = DeclaredShape(spec_, input);
    const auto& shape = message.shape();
    if (shape.size() > limits_.max_rank) {
      return Invalid(input.name, "the shape has ", shape.size(), " dimensions, the limit is ", limits_.max_rank);
    }
    if (shape.size() != static_cast<int>(declared.size())) {
      return Invalid(input.name, "the shape has ", shape.size(), " dimensions, the model takes ", ShapeText(declared));
    }
    for (int i = 0; i < shape.size(); ++i) {
      if (shape[i] <= 0) return Invalid(input.name, "the shape ", TextOf(message), " has a dimension that is not positive");
      const std::int64_t wanted = declared[static_cast<std::size_t>(i)];
      if (wanted != -1 && shape[i] != wanted) {
        return Invalid(input.name, "the shape is ", TextOf(message), ", the model takes ", ShapeText(declared));
      }
    }
    if (spec_.has_batch_dimension()) {
      if (shape[0] > limits_.max_request_rows) {
        return Invalid(input.name, "the request has ", shape[0], " rows, the limit is ", limits_.max_request_rows);
      }
      RETURN_IF_ERROR(Agree(input, "rows", rows_, shape[0]));
    }
    const int axis = SequenceAxisOf(input.dims);
    if (axis < 0) return absl::OkStatus();
    return Agree(input, "positions", length_, shape[axis + (spec_.has_batch_dimension() ? 1 : 0)]);
  }

  std::int64_t rows() const { return rows_.value_or(1); }
  std::int64_t length() const { return length_.value_or(0); }

 private:
  static std::string TextOf(const InputMessage& message) {
    return ShapeText({message.shape().data(), static_cast<std::size_t>(message.shape_size())});
  }

  static absl::Status Agree(const InputSpec& input, const char* what, std::optional<std::int64_t>& agreed, std::int64_t mine) {
    if (agreed && *agreed != mine) {
      return Invalid(input.name, "it has ", mine, " ", what, ", another input of the request has ", *agreed);
    }
    agreed = mine;
    return absl::OkStatus();
  }

  const ModelSpec& spec_;
  const RequestLimits& limits_;
  std::optional<std::int64_t> rows_;
  std::optional<std::int64_t> length_;
};

// How many bytes a dense tensor of this shape has.
absl::StatusOr<std::int64_t> DenseBytes(const InputSpec& input, const InputMessage& message) {
  std::vector<std::int64_t> factors(message.shape().begin(), message.shape().end());
  factors.push_back(SizeOf(input.type));
  const auto bytes = CheckedProduct(factors);
  if (!bytes.ok()) return Invalid(input.name, "the size of its shape overflows");
  return *bytes;
}

int TypedElements(const inference::InferTensorContents& contents) {
  return contents.bool_contents_size() + contents.int_contents_size() + contents.int64_contents_size() +
         contents.uint_contents_size() + contents.uint64_contents_size() + contents.fp32_contents_size() +
         contents.fp64_contents_size() + contents.bytes_contents_size();
}

// Copies `values` as elements of type T; false where one does not fit T.
template <class T, class Values>
bool Convert(const Values& values, std::byte* to) {
  for (const auto value : values) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) return false;
    }
    const T element = static_cast<T>(value);
    std::memcpy(to, &element, sizeof element);
    to += sizeof element;
  }
  return true;
}

// The number of elements in the one field that carries `type`, -1 where no field does.
int ElementsInRightField(DataType type, const inference::InferTensorContents& contents) {
  switch (type) {
    case DataType::kBool: return contents.bool_contents_size();
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32: return contents.int_contents_size();
    case DataType::kInt64: return contents.int64_contents_size();
    case DataType::kUint8: return contents.uint_contents_size();
    case DataType::kFp32: return contents.fp32_contents_size();
    case DataType::kFp64: return contents.fp64_contents_size();
    case DataType::kFp16:
    case DataType::kBf16: break;
  }
  return -1;
}

bool ConvertContents(DataType type, const inference::InferTensorContents& contents, std::byte* to) {
  switch (type) {
    case DataType::kBool: return Convert<bool>(contents.bool_contents(), to);
    case DataType::kInt8: return Convert<std::int8_t>(contents.int_contents(), to);
    case DataType::kInt16: return Convert<std::int16_t>(contents.int_contents(), to);
    case DataType::kInt32: return Convert<std::int32_t>(contents.int_contents(), to);
    case DataType::kInt64: return Convert<std::int64_t>(contents.int64_contents(), to);
    case DataType::kUint8: return Convert<std::uint8_t>(contents.uint_contents(), to);
    case DataType::kFp32: return Convert<float>(contents.fp32_contents(), to);
    case DataType::kFp64: return Convert<double>(contents.fp64_contents(), to);
    case DataType::kFp16:
    case DataType::kBf16: break;
  }
  return false;
}

absl::StatusOr<HostTensor> TypedContents(const InputSpec& input, const InputMessage& message, std::int64_t bytes) {
  const inference::InferTensorContents& contents = message.contents();
  const int elements = ElementsInRightField(input.type, contents);
  if (elements < 0) return Invalid(input.name, NameOf(input.type), " has no typed contents, send raw_input_contents");
  if (TypedElements(contents) != elements)
    return Invalid(input.name, "typed contents are in another type's field than that of ", NameOf(input.type));
  if (elements != bytes / SizeOf(input.type)) {
    return Invalid(input.name, "its shape asks for ", bytes / SizeOf(input.type), " elements, the contents have ", elements);
  }
  HostTensor tensor;
  tensor.type = input.type;
  tensor.shape.assign(message.shape().begin(), message.shape().end());
  tensor.data = AllocateHost({bytes});
  if (!ConvertContents(input.type, contents, tensor.data.get())) {
    return Invalid(input.name, "a value does not fit the type ", NameOf(input.type));
  }
  return tensor;
}

absl::Status CheckEnvelope(const inference::ModelInferRequest& message, const RequestLimits& limits) {
  if (message.inputs_size() > limits.max_inputs) {
    return absl::InvalidArgumentError(
        absl::StrCat("the request has ", message.inputs_size(), " inputs, the limit is ", limits.max_inputs));
  }
  const int raw = message.raw_input_contents_size();
  if (raw != 0 && raw != message.inputs_size()) {
    return absl::InvalidArgumentError(absl::StrCat("raw_input_contents must have one entry for each input: it has ", raw,
                                                   ", the request has ", message.inputs_size(), " inputs"));
  }
  return absl::OkStatus();
}

absl::Status CheckInput(const InputMessage& message, const ModelSpec& spec, const RequestLimits& limits, int index,
                        const InputTensors& bound) {
  if (index < 0) {
    if (message.name().size() > static_cast<std::size_t>(limits.max_name_length)) {
      return Invalid(message.name(), "the name has ", message.name().size(), " bytes, the limit is ", limits.max_name_length);
    }
    return Invalid(message.name(), "the model has no such input");
  }
  const InputSpec& input = spec.inputs[static_cast<std::size_t>(index)];
  if (bound.inputs[static_cast<std::size_t>(index)].data != nullptr) return Invalid(input.name, "it is there twice");
  if (message.datatype() != NameOf(input.type)) {
    return Invalid(input.name, "the datatype is ", Quoted(message.datatype()), ", the model takes ", NameOf(input.type));
  }
  if (message.parameters().contains("shared_memory_region")) {
    return Invalid(input.name, "shared_memory_region is not supported");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InputTensors> BindInputs(const inference::ModelInferRequest& message, const ModelSpec& spec,
                                        const RequestLimits& limits) {
  RETURN_IF_ERROR(CheckEnvelope(message, limits));
  InputTensors bound;
  bound.inputs.resize(spec.inputs.size());
  CommonShape common(spec, limits);
  const bool raw = message.raw_input_contents_size() > 0;
  for (int i = 0; i < message.inputs_size(); ++i) {
    const InputMessage& input_message = message.inputs(i);
    const int index = IndexOfInput(spec, input_message.name());
    RETURN_IF_ERROR(CheckInput(input_message, spec, limits, index, bound));
    const InputSpec& input = spec.inputs[static_cast<std::size_t>(index)];
    RETURN_IF_ERROR(common.Add(input, input_message));
    ASSIGN_OR_RETURN(const std::int64_t bytes, DenseBytes(input, input_message));
    RequestInput& view = bound.inputs[static_cast<std::size_t>(index)];
    if (raw) {
      const std::string& content = message.raw_input_contents(i);
      if (TypedElements(input_message.contents()) > 0) return Invalid(input.name, "it has both raw and typed contents");
      if (static_cast<std::int64_t>(content.size()) != bytes) {
        return Invalid(input.name, "its shape asks for ", bytes, " bytes, the contents have ", content.size());
      }
      view.data = reinterpret_cast<const std::byte*>(content.data());
    } else {
      ASSIGN_OR_RETURN(HostTensor tensor, TypedContents(input, input_message, bytes));
      bound.converted.push_back(std::move(tensor));
      view.data = bound.converted.back().data.get();
    }
  }
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    if (bound.inputs[i].data == nullptr && !spec.inputs[i].optional) return Invalid(spec.inputs[i].name, "it is missing");
  }
  bound.rows = common.rows();
  bound.length = common.length();
  if (spec.variable_length() && bound.length == 0) {
    return absl::InvalidArgumentError("the request has no input that tells the length of its rows");
  }
  return bound;
}

absl::StatusOr<std::vector<std::int64_t>> TrueLengths(const InputTensors& tensors, const ModelSpec& spec) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(tensors.rows), tensors.length);
  const int mask_index = spec.mask_index();
  if (mask_index < 0) return lengths;
  const InputSpec& mask = spec.inputs[static_cast<std::size_t>(mask_index)];
  const std::byte* const data = tensors.inputs[static_cast<std::size_t>(mask_index)].data;
  if (data == nullptr) return lengths;
  const std::int64_t width = SizeOf(mask.type);
  for (std::int64_t row = 0; row < tensors.rows; ++row) {
    std::int64_t& length = lengths[static_cast<std::size_t>(row)];
    const std::byte* const begin = data + row * tensors.length * width;
    while (length > 0 && LoadElement(mask.type, begin + (length - 1) * width) == 0) --length;
    if (length == 0) return Invalid(mask.name, "every position of row ", row, " is masked");
  }
  return lengths;
}

namespace {

// The first of `count` elements that is not between the bounds, or nullptr; compared as Bound.
template <class T, class Bound>
const std::byte* FirstOutside(const std::byte* data, std::int64_t count, Bound min, Bound max) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, data + i * static_cast<std::int64_t>(sizeof value), sizeof value);
    // Written so that NaN is outside.
    if (!(static_cast<Bound>(value) >= min && static_cast<Bound>(value) <= max)) {
      return data + i * static_cast<std::int64_t>(sizeof value);
    }
  }
  return nullptr;
}

// The least and the most INT64 of a range, which holds one: as doubles, integers beyond 2^53 would be rounded into it.
std::int64_t LeastOf(const ValueRange& range) {
  return range.min <= -0x1p63 ? std::numeric_limits<std::int64_t>::min() : static_cast<std::int64_t>(std::ceil(range.min));
}
std::int64_t MostOf(const ValueRange& range) {
  return range.max >= 0x1p63 ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(std::floor(range.max));
}

const std::byte* FirstOutside(DataType type, const std::byte* data, std::int64_t count, const ValueRange& range) {
  switch (type) {
    case DataType::kInt64: return FirstOutside<std::int64_t>(data, count, LeastOf(range), MostOf(range));
    case DataType::kInt32: return FirstOutside<std::int32_t>(data, count, range.min, range.max);
    case DataType::kFp32: return FirstOutside<float>(data, count, range.min, range.max);
    default: break;
  }
  const std::int64_t width = SizeOf(type);
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = LoadElement(type, data + i * width);
    if (!(value >= range.min && value <= range.max)) return data + i * width;
  }
  return nullptr;
}

// Every digit that tells one value from the next: "1234568", not "1.23457e+06".
std::string NumberText(double value) { return absl::StrFormat("%.15g", value); }

// Any other byte would be an undefined value in a kernel.
absl::Status CheckBooleans(const InputSpec& input, const InputTensors& tensors, const std::byte* data) {
  std::int64_t count = tensors.rows;
  for (const std::int64_t dim : input.dims) count *= dim == kSequenceAxis ? tensors.length : dim;
  const bool valid = std::all_of(data, data + count, [](std::byte value) { return value <= std::byte{1}; });
  return valid ? absl::OkStatus() : Invalid(input.name, "a byte of a BOOL is neither 0 nor 1");
}

absl::Status OutOfRange(const InputSpec& input, const std::byte* element) {
  std::string value;
  if (input.type == DataType::kInt64) {
    std::int64_t exact = 0;
    std::memcpy(&exact, element, sizeof exact);
    value = absl::StrCat(exact);
  } else {
    value = NumberText(LoadElement(input.type, element));
  }
  return Invalid(input.name, "the value ", value, " is outside the range [", NumberText(input.value_range->min), ", ",
                 NumberText(input.value_range->max), "]");
}

}  // namespace

absl::Status CheckValues(const InputTensors& tensors, const ModelSpec& spec, const std::vector<std::int64_t>& lengths) {
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    const InputSpec& input = spec.inputs[i];
    const std::byte* at = tensors.inputs[i].data;
    if (at == nullptr) continue;
    if (input.type == DataType::kBool) RETURN_IF_ERROR(CheckBooleans(input, tensors, at));
    if (!input.value_range) continue;
    const int axis = SequenceAxisOf(input.dims);
    std::int64_t outer = 1;  // sequences of a row
    std::int64_t inner = 1;  // elements of one position
    for (int d = 0; d < static_cast<int>(input.dims.size()); ++d) {
      if (d != axis) (axis >= 0 && d < axis ? outer : inner) *= input.dims[static_cast<std::size_t>(d)];
    }
    for (const std::int64_t length : lengths) {
      for (std::int64_t sequence = 0; sequence < outer; ++sequence) {
        // What lies beyond the true length never reaches the model.
        const std::int64_t count = (axis >= 0 ? length : 1) * inner;
        const std::byte* const outside = FirstOutside(input.type, at, count, *input.value_range);
        if (outside != nullptr) return OutOfRange(input, outside);
        at += (axis >= 0 ? tensors.length : 1) * inner * SizeOf(input.type);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace headroom
