#include "server/input_tensors.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "test/server/wire_request.h"

namespace headroom {
namespace {

using inference::ModelInferRequest;
using Lengths = std::vector<std::int64_t>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string FaultOf(const absl::Status& status) {
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

std::string FaultOfBinding(const ModelInferRequest& request, const ModelSpec& spec, const RequestLimits& limits = {}) {
  const auto bound = BindInputs(request, spec, limits);
  return bound.ok() ? "" : FaultOf(bound.status());
}

InputTensors Bound(const ModelInferRequest& request, const ModelSpec& spec) {
  auto bound = BindInputs(request, spec, {});
  INFO(bound.status().ToString());
  REQUIRE(bound.ok());
  return *std::move(bound);
}

// A model of one input, with a batch dimension.
ModelSpec OneInput(DataType type, std::vector<std::int64_t> dims, std::optional<ValueRange> range = std::nullopt) {
  ModelSpec spec;
  spec.name = "one";
  spec.max_batch_rows = 8;
  spec.inputs = {{.name = "x", .type = type, .dims = std::move(dims), .value_range = range}};
  spec.outputs = {{.name = "y", .type = DataType::kFp32, .dims = {1}}};
  return spec;
}

TEST_CASE("raw contents are bound where they lie", "[input_tensors]") {
  const ModelInferRequest request = ToyWireRequest({{1, 2, 3}, {4, 5, 6}}, {{1, 1, 1}, {1, 1, 0}});
  const InputTensors bound = Bound(request, ToySpec());
  CHECK(bound.rows == 2);
  CHECK(bound.length == 3);
  REQUIRE(bound.inputs.size() == 2);
  CHECK(bound.inputs[0].data == reinterpret_cast<const std::byte*>(request.raw_input_contents(0).data()));
  CHECK(bound.inputs[1].data == reinterpret_cast<const std::byte*>(request.raw_input_contents(1).data()));
  CHECK(bound.converted.empty());
}

TEST_CASE("inputs are bound by name, in whatever order they come", "[input_tensors]") {
  ModelInferRequest request;
  AddRaw<std::int64_t>(request, "attention_mask", "INT64", {1, 2}, {1, 0});
  AddRaw<std::int64_t>(request, "input_ids", "INT64", {1, 2}, {7, 8});
  const InputTensors bound = Bound(request, ToySpec());
  CHECK(bound.inputs[0].data == reinterpret_cast<const std::byte*>(request.raw_input_contents(1).data()));
  CHECK(bound.inputs[1].data == reinterpret_cast<const std::byte*>(request.raw_input_contents(0).data()));
}

TEST_CASE("an optional input that is left out is null", "[input_tensors]") {
  const ModelInferRequest request = ToyWireRequest({{1, 2, 3}});
  const InputTensors bound = Bound(request, ToySpec());
  CHECK(bound.inputs[0].data != nullptr);
  CHECK(bound.inputs[1].data == nullptr);
}

TEST_CASE("typed contents become dense bytes", "[input_tensors]") {
  struct Case {
    DataType type;
    std::string contents;
    std::string bytes;
  };
  const std::vector<Case> cases = {
      {DataType::kBool, "bool_contents: [ true, false ]", RawBytes<std::int8_t>({1, 0})},
      {DataType::kInt8, "int_contents: [ -128, 127 ]", RawBytes<std::int8_t>({-128, 127})},
      {DataType::kInt16, "int_contents: [ -32768, 32767 ]", RawBytes<std::int16_t>({-32768, 32767})},
      {DataType::kInt32, "int_contents: [ -2147483648, 2147483647 ]",
       RawBytes<std::int32_t>({std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()})},
      {DataType::kInt64, "int64_contents: [ -9223372036854775808, 9223372036854775807 ]",
       RawBytes<std::int64_t>({std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()})},
      {DataType::kUint8, "uint_contents: [ 0, 255 ]", RawBytes<std::uint8_t>({0, 255})},
      {DataType::kFp32, "fp32_contents: [ 0.5, -inf ]", RawBytes<float>({0.5F, -static_cast<float>(kInfinity)})},
      {DataType::kFp64, "fp64_contents: [ 0.1, 1e300 ]", RawBytes<double>({0.1, 1e300})},
  };
  for (const Case& c : cases) {
    CAPTURE(NameOf(c.type), c.contents);
    const ModelInferRequest request = InferRequest(std::string("inputs { name: 'x' datatype: '") + NameOf(c.type) +
                                                   "' shape: [ 1, 2 ] contents { " + c.contents + " } }");
    const InputTensors bound = Bound(request, OneInput(c.type, {2}));
    REQUIRE(bound.converted.size() == 1);
    const auto bytes = bound.converted[0].bytes();
    CHECK(bound.inputs[0].data == bytes.data());
    CHECK(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) == c.bytes);
  }
}

TEST_CASE("typed contents that cannot be taken are refused", "[input_tensors]") {
  struct Case {
    DataType type;
    std::string contents;
    std::string text;
  };
  const std::vector<Case> cases = {
      {DataType::kInt8, "int_contents: [ 0, 128 ]", "input 'x': a value does not fit the type INT8"},
      {DataType::kInt8, "int_contents: [ -129, 0 ]", "input 'x': a value does not fit the type INT8"},
      {DataType::kInt16, "int_contents: [ 0, 32768 ]", "input 'x': a value does not fit the type INT16"},
      {DataType::kUint8, "uint_contents: [ 256, 0 ]", "input 'x': a value does not fit the type UINT8"},
      {DataType::kUint8, "int_contents: [ 1, 2 ]", "input 'x': typed contents are in another type's field than that of UINT8"},
      {DataType::kInt64, "int_contents: [ 1, 2 ]", "input 'x': typed contents are in another type's field than that of INT64"},
      {DataType::kInt64, "int64_contents: [ 1, 2 ] fp32_contents: 1",
       "input 'x': typed contents are in another type's field than that of INT64"},
      {DataType::kFp32, "fp64_contents: [ 1, 2 ]", "input 'x': typed contents are in another type's field than that of FP32"},
      {DataType::kFp32, "bytes_contents: 'abcdefgh'", "input 'x': typed contents are in another type's field than that of FP32"},
      {DataType::kFp32, "fp32_contents: 1", "input 'x': its shape asks for 2 elements, the contents have 1"},
      {DataType::kFp32, "fp32_contents: [ 1, 2, 3 ]", "input 'x': its shape asks for 2 elements, the contents have 3"},
      {DataType::kFp32, "", "input 'x': its shape asks for 2 elements, the contents have 0"},
      {DataType::kFp16, "fp32_contents: [ 1, 2 ]", "input 'x': FP16 has no typed contents, send raw_input_contents"},
      {DataType::kBf16, "fp32_contents: [ 1, 2 ]", "input 'x': BF16 has no typed contents, send raw_input_contents"},
  };
  for (const Case& c : cases) {
    CAPTURE(NameOf(c.type), c.contents);
    const ModelInferRequest request = InferRequest(std::string("inputs { name: 'x' datatype: '") + NameOf(c.type) +
                                                   "' shape: [ 1, 2 ] contents { " + c.contents + " } }");
    CHECK(FaultOfBinding(request, OneInput(c.type, {2})) == c.text);
  }
}

TEST_CASE("the half precisions come raw", "[input_tensors]") {
  for (const DataType type : {DataType::kFp16, DataType::kBf16}) {
    ModelInferRequest request;
    AddRaw<std::uint16_t>(request, "x", NameOf(type), {1, 2}, {0x3C00, 0x4000});
    CHECK(Bound(request, OneInput(type, {2})).inputs[0].data != nullptr);
  }
}

TEST_CASE("inputs that are not the model's are refused by name", "[input_tensors]") {
  const std::string ids = "inputs { name: 'input_ids' datatype: 'INT64' shape: [ 1, 2 ] contents { int64_contents: [ 1, 2 ] } } ";
  struct Case {
    std::string request;
    std::string text;
  };
  const std::vector<Case> cases = {
      {"", "input 'input_ids': it is missing"},
      {"inputs { name: 'attention_mask' datatype: 'INT64' shape: [ 1, 2 ] contents { int64_contents: [ 1, 1 ] } }",
       "input 'input_ids': it is missing"},
      {"inputs { name: 'ids' datatype: 'INT64' shape: [ 1, 1 ] contents { int64_contents: 1 } }",
       "input 'ids': the model has no such input"},
      {ids + "inputs { }", "input '': the model has no such input"},
      {ids + "inputs { name: '\\n/etc/passwd\\001' }", "input '\\n/etc/passwd\\x01': the model has no such input"},
      {ids + "inputs { name: '" + std::string(129, 'x') + "' }",
       "input '" + std::string(64, 'x') + "…': the name has 129 bytes, the limit is 128"},
      {ids + "inputs { name: '" + std::string(128, 'x') + "' }",
       "input '" + std::string(64, 'x') + "…': the model has no such input"},
      {ids + ids, "input 'input_ids': it is there twice"},
      {ids + "inputs { name: 'attention_mask' datatype: 'BOOL' shape: [ 1, 2 ] contents { bool_contents: [ true, true ] } }",
       "input 'attention_mask': the datatype is 'BOOL', the model takes INT64"},
      {"inputs { name: 'input_ids' datatype: 'INT32' shape: [ 1, 1 ] contents { int_contents: 1 } }",
       "input 'input_ids': the datatype is 'INT32', the model takes INT64"},
      {"inputs { name: 'input_ids' datatype: 'int64' shape: [ 1, 1 ] contents { int64_contents: 1 } }",
       "input 'input_ids': the datatype is 'int64', the model takes INT64"},
      {"inputs { name: 'input_ids' shape: [ 1, 1 ] contents { int64_contents: 1 } }",
       "input 'input_ids': the datatype is '', the model takes INT64"},
      {"inputs { name: 'input_ids' datatype: 'INT64' shape: [ 1, 1 ] "
       "parameters { key: 'shared_memory_region' value { string_param: 'r' } } }",
       "input 'input_ids': shared_memory_region is not supported"},
      {ids + "inputs { name: 'attention_mask' datatype: 'INT64' shape: [ 2, 1 ] contents { int64_contents: [ 1, 1 ] } }",
       "input 'attention_mask': it has 2 rows, another input of the request has 1"},
      {ids + "inputs { name: 'attention_mask' datatype: 'INT64' shape: [ 1, 3 ] contents { int64_contents: [ 1, 1, 1 ] } }",
       "input 'attention_mask': it has 3 positions, another input of the request has 2"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.request);
    CHECK(FaultOfBinding(InferRequest(c.request), ToySpec()) == c.text);
  }
}

TEST_CASE("a shape that cannot be a batch of the model is refused", "[input_tensors]") {
  struct Case {
    std::string shape;
    std::string text;
  };
  const std::vector<Case> cases = {
      {"", "the shape has 0 dimensions, the model takes [-1, -1]"},
      {"1", "the shape has 1 dimensions, the model takes [-1, -1]"},
      {"1, 1, 1", "the shape has 3 dimensions, the model takes [-1, -1]"},
      {"1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1", "the shape has 17 dimensions, the limit is 16"},
      {"0, 1", "the shape [0, 1] has a dimension that is not positive"},
      {"1, 0", "the shape [1, 0] has a dimension that is not positive"},
      {"-1, 1", "the shape [-1, 1] has a dimension that is not positive"},
      {"1, -9223372036854775808", "the shape [1, -9223372036854775808] has a dimension that is not positive"},
      {"4097, 1", "the request has 4097 rows, the limit is 4096"},
      {"9223372036854775807, 9223372036854775807", "the request has 9223372036854775807 rows, the limit is 4096"},
      {"1, 9223372036854775807", "the size of its shape overflows"},
      {"2, 576460752303423488", "the size of its shape overflows"},
      {"4096, 4611686018427387905", "the size of its shape overflows"},
      {"1, 1152921504606846975", "its shape asks for 9223372036854775800 bytes, the contents have 8"},
      {"1, 2", "its shape asks for 16 bytes, the contents have 8"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.shape);
    ModelInferRequest request = InferRequest("inputs { name: 'input_ids' datatype: 'INT64' shape: [ " + c.shape + " ] }");
    request.add_raw_input_contents(RawBytes<std::int64_t>({1}));
    CHECK(FaultOfBinding(request, ToySpec()) == "input 'input_ids': " + c.text);
  }
}

TEST_CASE("raw contents are as long as their shape asks for, to the byte", "[input_tensors]") {
  for (const std::size_t size : {0U, 1U, 15U, 17U, 24U}) {
    ModelInferRequest request = InferRequest("inputs { name: 'input_ids' datatype: 'INT64' shape: [ 1, 2 ] }");
    request.add_raw_input_contents(std::string(size, '\0'));
    CHECK(FaultOfBinding(request, ToySpec()) ==
          "input 'input_ids': its shape asks for 16 bytes, the contents have " + std::to_string(size));
  }
}

TEST_CASE("contents are raw for all inputs or for none, one entry each", "[input_tensors]") {
  ModelInferRequest request = ToyWireRequest({{1}}, {{1}});
  request.add_raw_input_contents("");
  CHECK(FaultOfBinding(request, ToySpec()) ==
        "raw_input_contents must have one entry for each input: it has 3, the request has 2 inputs");
  request.mutable_raw_input_contents()->DeleteSubrange(1, 2);
  CHECK(FaultOfBinding(request, ToySpec()) ==
        "raw_input_contents must have one entry for each input: it has 1, the request has 2 inputs");

  ModelInferRequest both = ToyWireRequest({{1}});
  both.mutable_inputs(0)->mutable_contents()->add_int64_contents(1);
  CHECK(FaultOfBinding(both, ToySpec()) == "input 'input_ids': it has both raw and typed contents");
}

TEST_CASE("limits are those of the options", "[input_tensors]") {
  const ModelInferRequest request = ToyWireRequest({{1}, {2}, {3}}, {{1}, {1}, {1}});
  RequestLimits limits;
  limits.max_inputs = 2;
  limits.max_request_rows = 3;
  limits.max_rank = 2;
  CHECK(FaultOfBinding(request, ToySpec(), limits) == "");  // NOLINT(readability-container-size-empty): a text that is none
  limits.max_inputs = 1;
  CHECK(FaultOfBinding(request, ToySpec(), limits) == "the request has 2 inputs, the limit is 1");
  limits = {};
  limits.max_request_rows = 2;
  CHECK(FaultOfBinding(request, ToySpec(), limits) == "input 'input_ids': the request has 3 rows, the limit is 2");
  limits = {};
  limits.max_rank = 1;
  CHECK(FaultOfBinding(request, ToySpec(), limits) == "input 'input_ids': the shape has 2 dimensions, the limit is 1");
}

TEST_CASE("declared dimensions are kept", "[input_tensors]") {
  const ModelSpec spec = OneInput(DataType::kInt8, {2, 3});
  ModelInferRequest request;
  AddRaw<std::int8_t>(request, "x", "INT8", {1, 2, 3}, {1, 2, 3, 4, 5, 6});
  const InputTensors bound = Bound(request, spec);
  CHECK(bound.rows == 1);
  CHECK(bound.length == 0);

  ModelInferRequest turned;
  AddRaw<std::int8_t>(turned, "x", "INT8", {1, 3, 2}, {1, 2, 3, 4, 5, 6});
  CHECK(FaultOfBinding(turned, spec) == "input 'x': the shape is [1, 3, 2], the model takes [-1, 2, 3]");
}

TEST_CASE("a model without a batch dimension takes one row, without it in the shape", "[input_tensors]") {
  ModelSpec spec = ToySpec();
  spec.max_batch_rows = 0;
  ModelInferRequest request;
  AddRaw<std::int64_t>(request, "input_ids", "INT64", {3}, {1, 2, 3});
  const InputTensors bound = Bound(request, spec);
  CHECK(bound.rows == 1);
  CHECK(bound.length == 3);
  CHECK(FaultOfBinding(ToyWireRequest({{1, 2, 3}}), spec) == "input 'input_ids': the shape has 2 dimensions, the model takes [-1]");
}

TEST_CASE("every sequence axis of a request is as long as the others", "[input_tensors]") {
  ModelSpec spec = OneInput(DataType::kInt8, {kSequenceAxis, 2});
  spec.inputs.push_back({.name = "z", .type = DataType::kInt8, .dims = {2, kSequenceAxis}, .value_range = {}});
  ModelInferRequest request;
  AddRaw<std::int8_t>(request, "x", "INT8", {1, 1, 2}, {1, 2});
  AddRaw<std::int8_t>(request, "z", "INT8", {1, 2, 1}, {1, 2});
  CHECK(Bound(request, spec).length == 1);
  request.mutable_inputs(1)->set_shape(2, 2);
  CHECK(FaultOfBinding(request, spec) == "input 'z': it has 2 positions, another input of the request has 1");
}

TEST_CASE("a request that says no length is refused", "[input_tensors]") {
  ModelSpec spec = ToySpec();
  spec.inputs[0].optional = true;
  CHECK(FaultOfBinding({}, spec) == "the request has no input that tells the length of its rows");
}

TEST_CASE("a row is as long as its last unmasked position says", "[input_tensors]") {
  struct Case {
    std::vector<Ids> masks;
    Lengths lengths;
  };
  const std::vector<Case> cases = {
      {{{1, 1, 1}}, {3}},
      {{{1, 1, 0}}, {2}},
      {{{1, 0, 0}}, {1}},
      {{{1, 0, 1}}, {3}},
      {{{0, 1, 0}}, {2}},
      {{{0, 0, -7}}, {3}},
      {{{1, 0, 0}, {1, 1, 1}, {0, 1, 0}}, {1, 3, 2}},
      {{}, {3, 3}},  // left out
  };
  for (const Case& c : cases) {
    CAPTURE(c.masks, c.lengths);
    const ModelInferRequest request = ToyWireRequest(std::vector<Ids>(c.lengths.size(), {5, 6, 7}), c.masks);
    const auto lengths = TrueLengths(Bound(request, ToySpec()), ToySpec());
    REQUIRE(lengths.ok());
    CHECK(*lengths == c.lengths);
  }
}

TEST_CASE("a row whose mask is all zero is refused", "[input_tensors]") {
  const ModelInferRequest request = ToyWireRequest({{5, 6}, {7, 8}}, {{1, 1}, {0, 0}});
  CHECK(FaultOf(TrueLengths(Bound(request, ToySpec()), ToySpec()).status()) ==
        "input 'attention_mask': every position of row 1 is masked");
}

TEST_CASE("a mask may be of any type", "[input_tensors]") {
  const auto lengths_of = [](DataType type, const auto& elements) {
    ModelSpec spec = ToySpec();
    spec.inputs[1].type = type;
    ModelInferRequest request = ToyWireRequest({{5, 6, 7}});
    AddRaw(request, "attention_mask", NameOf(type), {1, 3}, elements);
    return TrueLengths(Bound(request, spec), spec).value();
  };
  CHECK(lengths_of(DataType::kBool, std::vector<std::int8_t>{1, 1, 0}) == Lengths{2});
  CHECK(lengths_of(DataType::kUint8, std::vector<std::uint8_t>{1, 255, 0}) == Lengths{2});
  CHECK(lengths_of(DataType::kInt32, std::vector<std::int32_t>{1, 1, 0}) == Lengths{2});
  CHECK(lengths_of(DataType::kFp16, std::vector<std::uint16_t>{0x3C00, 0x3C00, 0}) == Lengths{2});
  CHECK(lengths_of(DataType::kFp32, std::vector<float>{1, 1, -0.0F}) == Lengths{2});
}

TEST_CASE("without a mask input every row is as long as the client made it", "[input_tensors]") {
  const ModelSpec spec = OneInput(DataType::kInt8, {kSequenceAxis});
  ModelInferRequest request;
  AddRaw<std::int8_t>(request, "x", "INT8", {2, 3}, {0, 0, 0, 0, 0, 0});
  CHECK(TrueLengths(Bound(request, spec), spec).value() == Lengths{3, 3});
}

// What CheckValues says of one row of `elements`, "" where it is satisfied.
template <class T>
std::string FaultOfValues(DataType type, std::optional<ValueRange> range, const std::vector<T>& elements) {
  const ModelSpec spec = OneInput(type, {kSequenceAxis}, range);
  ModelInferRequest request;
  const auto length = static_cast<std::int64_t>(elements.size());
  AddRaw(request, "x", NameOf(type), {1, length}, elements);
  const absl::Status status = CheckValues(Bound(request, spec), spec, {length});
  return status.ok() ? "" : FaultOf(status);
}

TEST_CASE("integers keep their declared range, to the extremes of their type", "[input_tensors]") {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const ValueRange vocabulary{0, 999};
  CHECK(FaultOfValues<std::int64_t>(DataType::kInt64, vocabulary, {0, 500, 999}).empty());
  CHECK(FaultOfValues<std::int64_t>(DataType::kInt64, vocabulary, {0, -1}) ==
        "input 'x': the value -1 is outside the range [0, 999]");
  CHECK(FaultOfValues<std::int64_t>(DataType::kInt64, vocabulary, {1000, 0}) ==
        "input 'x': the value 1000 is outside the range [0, 999]");
  CHECK(FaultOfValues<std::int64_t>(DataType::kInt64, vocabulary, {kMost}) ==
        "input 'x': the value 9223372036854775807 is outside the range [0, 999]");
  CHECK(FaultOfValues<std::int64_t>(DataType::kInt64, vocabulary, {kLeast}) ==
        "input 'x': the value -9223372036854775808 is outside the range [0, 999]");
  CHECK(FaultOfValues<std::int64_t>(DataType::kInt64, ValueRange{-0x1p63, 0x1p63}, {kLeast, 0, kMost}).empty());
  CHECK(FaultOfValues<std::int64_t>(DataType::kInt64, std::nullopt, {kLeast, 0, kMost}).empty());
  CHECK(FaultOfValues<std::int64_t>(DataType::kInt64, ValueRange{0.5, 1.5}, {1}).empty());
  CHECK(FaultOfValues<std::int64_t>(DataType::kInt64, ValueRange{0.5, 1.5}, {2}) ==
        "input 'x': the value 2 is outside the range [0.5, 1.5]");

  CHECK(FaultOfValues<std::int32_t>(DataType::kInt32, ValueRange{0, 2147483646}, {2147483647}) ==
        "input 'x': the value 2147483647 is outside the range [0, 2147483646]");
  CHECK(FaultOfValues<std::int32_t>(DataType::kInt32, ValueRange{0, 1234567}, {1234568}) ==
        "input 'x': the value 1234568 is outside the range [0, 1234567]");
  CHECK(FaultOfValues<std::int8_t>(DataType::kInt8, ValueRange{-1, 1}, {-1, 0, 1}).empty());
  CHECK(FaultOfValues<std::int8_t>(DataType::kInt8, ValueRange{-1, 1}, {-128}) ==
        "input 'x': the value -128 is outside the range [-1, 1]");
  CHECK(FaultOfValues<std::uint8_t>(DataType::kUint8, ValueRange{0, 9}, {255}) ==
        "input 'x': the value 255 is outside the range [0, 9]");
}

TEST_CASE("integers beyond the doubles' precision are compared exactly", "[input_tensors]") {
  constexpr std::int64_t kTwoTo53 = std::int64_t{1} << 53;
  CHECK(FaultOfValues<std::int64_t>(DataType::kInt64, ValueRange{-0x1p53, 0x1p53}, {-kTwoTo53, kTwoTo53}).empty());
  CHECK_FALSE(FaultOfValues<std::int64_t>(DataType::kInt64, ValueRange{0, 0x1p53}, {kTwoTo53 + 1}).empty());
  CHECK_FALSE(FaultOfValues<std::int64_t>(DataType::kInt64, ValueRange{-0x1p53, 0}, {-kTwoTo53 - 1}).empty());
}

TEST_CASE("NaN and infinities keep no range, and pass where none is declared", "[input_tensors]") {
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  const auto infinity = static_cast<float>(kInfinity);
  const ValueRange unit{-1, 1};
  CHECK(FaultOfValues<float>(DataType::kFp32, unit, {-1, -0.0F, 1}).empty());
  CHECK(FaultOfValues<float>(DataType::kFp32, unit, {0, nan}) == "input 'x': the value nan is outside the range [-1, 1]");
  CHECK(FaultOfValues<float>(DataType::kFp32, unit, {infinity}) == "input 'x': the value inf is outside the range [-1, 1]");
  CHECK(FaultOfValues<float>(DataType::kFp32, unit, {-infinity}) == "input 'x': the value -inf is outside the range [-1, 1]");
  CHECK_FALSE(FaultOfValues<float>(DataType::kFp32, unit, {std::nextafter(1.0F, 2.0F)}).empty());
  CHECK(FaultOfValues<float>(DataType::kFp32, ValueRange{-1e308, 1e308}, {std::numeric_limits<float>::max()}).empty());
  CHECK_FALSE(FaultOfValues<float>(DataType::kFp32, ValueRange{-1e308, 1e308}, {infinity}).empty());
  CHECK(FaultOfValues<float>(DataType::kFp32, std::nullopt, {nan, infinity, -infinity}).empty());

  CHECK_FALSE(FaultOfValues<double>(DataType::kFp64, unit, {std::numeric_limits<double>::quiet_NaN()}).empty());
  CHECK_FALSE(FaultOfValues<std::uint16_t>(DataType::kFp16, unit, {0x7E00}).empty());  // NaN
  CHECK_FALSE(FaultOfValues<std::uint16_t>(DataType::kBf16, unit, {0x7F80}).empty());  // infinity
  CHECK(FaultOfValues<std::uint16_t>(DataType::kFp16, unit, {0x3C00}).empty());        // 1
}

TEST_CASE("what lies beyond a row's true length may be anything", "[input_tensors]") {
  const std::vector<Ids> rows = {{5, -1, 5000}, {6, 7, 5000}};
  const auto fault = [&](const std::vector<Ids>& masks) {
    const ModelInferRequest request = ToyWireRequest(rows, masks);
    const InputTensors bound = Bound(request, ToySpec());
    const absl::Status status = CheckValues(bound, ToySpec(), TrueLengths(bound, ToySpec()).value());
    return status.ok() ? "" : FaultOf(status);
  };
  CHECK(fault({{1, 0, 0}, {1, 1, 0}}).empty());
  CHECK(fault({{1, 1, 0}, {1, 1, 0}}) == "input 'input_ids': the value -1 is outside the range [0, 999]");
  // A hole is within the true length.
  CHECK(fault({{1, 0, 0}, {1, 0, 1}}) == "input 'input_ids': the value 5000 is outside the range [0, 999]");
  CHECK(fault({}) == "input 'input_ids': the value -1 is outside the range [0, 999]");
}

TEST_CASE("the true length cuts the sequence axis wherever it is", "[input_tensors]") {
  // One row of length 2 in a tensor of length 3; 9 marks what is beyond it.
  struct Case {
    std::vector<std::int64_t> dims;
    std::vector<std::int64_t> shape;
    std::vector<std::int8_t> elements;
  };
  const std::vector<Case> cases = {
      {{kSequenceAxis, 2}, {1, 3, 2}, {1, 1, 1, 1, 9, 9}},
      {{2, kSequenceAxis}, {1, 2, 3}, {1, 1, 9, 1, 1, 9}},
      {{2, kSequenceAxis, 2}, {1, 2, 3, 2}, {1, 1, 1, 1, 9, 9, 1, 1, 1, 1, 9, 9}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.dims);
    const ModelSpec spec = OneInput(DataType::kInt8, c.dims, ValueRange{0, 1});
    for (std::size_t i = 0; i < c.elements.size(); ++i) {
      std::vector<std::int8_t> elements = c.elements;
      ModelInferRequest request;
      AddRaw(request, "x", "INT8", c.shape, elements);
      CHECK(CheckValues(Bound(request, spec), spec, {2}).ok());
      elements[i] = 2;
      request.set_raw_input_contents(0, RawBytes(elements));
      CHECK(CheckValues(Bound(request, spec), spec, {2}).ok() == (c.elements[i] == 9));
    }
  }
}

TEST_CASE("an input without a sequence axis is checked whole", "[input_tensors]") {
  ModelSpec spec = ToySpec();
  spec.inputs.push_back({.name = "scale", .type = DataType::kFp32, .dims = {2}, .optional = true, .value_range = ValueRange{0, 1}});
  ModelInferRequest request = ToyWireRequest({{5, 6}, {7, 8}}, {{1, 0}, {1, 0}});
  CHECK(CheckValues(Bound(request, spec), spec, {1, 1}).ok());  // left out
  AddRaw<float>(request, "scale", "FP32", {2, 2}, {0, 0, 0, 2});
  CHECK(FaultOf(CheckValues(Bound(request, spec), spec, {1, 1})) == "input 'scale': the value 2 is outside the range [0, 1]");
}

}  // namespace
}  // namespace headroom
