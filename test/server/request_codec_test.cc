#include "server/request_codec.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "test/server/wire_request.h"

namespace headroom {
namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;
using std::chrono::microseconds;
using std::chrono::seconds;

constexpr TimePoint kNow{seconds(1000)};

// P with two outputs, buckets up to 64, cut up to 100 and alone up to 200.
ModelSpec TieredSpec() {
  ModelSpec spec = ToySpec();
  spec.outputs.push_back({.name = "tokens", .type = DataType::kFp32, .dims = {kSequenceAxis}});
  spec.sequence.buckets = {32, 64};
  spec.sequence.tiers = {{100, TierAction::kTruncate}, {200, TierAction::kSolo}};
  return spec;
}

DecodedRequest Decoded(const ModelInferRequest& request, const ServedModel& model, TimePoint grpc_deadline = kForever) {
  auto decoded = DecodeRequest(request, model, {}, kNow, grpc_deadline);
  INFO(decoded.status().ToString());
  REQUIRE(decoded.ok());
  return *std::move(decoded);
}

std::string FaultOf(const ModelInferRequest& request, const ServedModel& model) {
  const auto decoded = DecodeRequest(request, model, {}, kNow, kForever);
  if (decoded.ok()) return "";
  CHECK(decoded.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(decoded.status().message());
}

// A valid request with what `text` adds to it.
ModelInferRequest With(const std::string& text) {
  ModelInferRequest request = ToyWireRequest({{1, 2}});
  request.MergeFrom(InferRequest(text));
  return request;
}

std::string Parameter(const std::string& name, const std::string& value) {
  return "parameters { key: '" + name + "' value { " + value + " } } ";
}

TEST_CASE("a request becomes rows", "[request_codec]") {
  const auto model = ServedOnPaper(TieredSpec());
  const ModelInferRequest request = ToyWireRequest({Row(40, 1), Row(40, 2)}, {Row(40, 1), [] {
                                                                                Ids mask = Row(40, 0);
                                                                                mask[8] = 1;
                                                                                return mask;
                                                                              }()});
  const DecodedRequest decoded = Decoded(request, *model);
  CHECK(decoded.parts.spec == model->spec);
  CHECK(decoded.parts.client_length == 40);
  REQUIRE(decoded.parts.rows.size() == 2);
  CHECK(decoded.parts.rows[0].length == 40);
  CHECK(decoded.parts.rows[0].placement.bucket == 64);
  CHECK(decoded.parts.rows[1].length == 9);
  CHECK(decoded.parts.rows[1].placement.bucket == 32);
  REQUIRE(decoded.parts.inputs.size() == 2);
  CHECK(decoded.parts.inputs[0].data == reinterpret_cast<const std::byte*>(request.raw_input_contents(0).data()));
  CHECK(decoded.parts.inputs[1].data == reinterpret_cast<const std::byte*>(request.raw_input_contents(1).data()));
  CHECK(decoded.parts.arrived == kNow);
  CHECK(decoded.parts.deadline == kForever);
  CHECK(decoded.parts.priority == 0);
  CHECK(decoded.outputs == std::vector<int>{0, 1});
  CHECK_FALSE(decoded.explain);
  CHECK(decoded.truncated_from == 0);
}

TEST_CASE("typed contents outlive the move of what was decoded", "[request_codec]") {
  const auto model = ServedOnPaper(ToySpec());
  const ModelInferRequest request =
      InferRequest("inputs { name: 'input_ids' datatype: 'INT64' shape: [ 1, 2 ] contents { int64_contents: [ 7, 8 ] } }");
  DecodedRequest first = Decoded(request, *model);
  const DecodedRequest decoded = std::move(first);
  CHECK(LoadElement(DataType::kInt64, decoded.parts.inputs[0].data) == 7);
  CHECK(LoadElement(DataType::kInt64, decoded.parts.inputs[0].data + 8) == 8);
}

TEST_CASE("the true length decides about the bucket, the tier and the refusal", "[request_codec]") {
  struct Case {
    std::int64_t client_length;
    std::int64_t length;
    Placement placement;
    std::int64_t truncated_from;
  };
  const std::vector<Case> cases = {
      {1, 1, {32, 1, false}, 0},       {32, 32, {32, 32, false}, 0},
      {33, 33, {64, 33, false}, 0},    {64, 64, {64, 64, false}, 0},
      {65, 65, {64, 64, false}, 65},   {100, 100, {64, 64, false}, 100},
      {101, 101, {200, 101, true}, 0}, {200, 200, {200, 200, true}, 0},
      {5000, 20, {32, 20, false}, 0},  // padding by the client does not count
  };
  const auto model = ServedOnPaper(TieredSpec());
  for (const Case& c : cases) {
    CAPTURE(c.client_length, c.length);
    Ids mask = Row(c.client_length, 0);
    std::fill_n(mask.begin(), c.length, 1);
    const ModelInferRequest request = ToyWireRequest({Row(c.client_length)}, {mask});
    const DecodedRequest decoded = Decoded(request, *model);
    REQUIRE(decoded.parts.rows.size() == 1);
    CHECK(decoded.parts.client_length == c.client_length);
    CHECK(decoded.parts.rows[0].length == c.length);
    CHECK(decoded.parts.rows[0].placement.bucket == c.placement.bucket);
    CHECK(decoded.parts.rows[0].placement.kept_length == c.placement.kept_length);
    CHECK(decoded.parts.rows[0].placement.alone == c.placement.alone);
    CHECK(decoded.truncated_from == c.truncated_from);
  }
  CHECK(FaultOf(ToyWireRequest({Row(201)}), *model) == "input 'input_ids': the length 201 is over the limit of 200");
  CHECK(FaultOf(ToyWireRequest({Row(513)}), *ServedOnPaper(ToySpec())) ==
        "input 'input_ids': the length 513 is over the limit of 512");
}

TEST_CASE("truncated_from is the longest length that was cut", "[request_codec]") {
  const auto model = ServedOnPaper(TieredSpec());
  const auto mask = [](std::int64_t ones) {
    Ids row = Row(150, 0);
    std::fill_n(row.begin(), ones, 1);
    return row;
  };
  const ModelInferRequest request = ToyWireRequest(std::vector<Ids>(4, Row(150)), {mask(70), mask(150), mask(90), mask(10)});
  const DecodedRequest decoded = Decoded(request, *model);
  CHECK(decoded.truncated_from == 90);
  CHECK(decoded.parts.rows[1].placement.alone);
}

TEST_CASE("one row that cannot be served refuses its request", "[request_codec]") {
  const auto model = ServedOnPaper(ToySpec());
  CHECK(FaultOf(ToyWireRequest({{1, 2}, {3, 1000}}), *model) == "input 'input_ids': the value 1000 is outside the range [0, 999]");
  CHECK(FaultOf(ToyWireRequest({{1, 2}, {3, 4}}, {{1, 1}, {0, 0}}), *model) ==
        "input 'attention_mask': every position of row 1 is masked");
}

TEST_CASE("without a batch dimension a request is one row", "[request_codec]") {
  ModelSpec spec = ToySpec();
  spec.max_batch_rows = 0;
  ModelInferRequest request;
  AddRaw<std::int64_t>(request, "input_ids", "INT64", {3}, {1, 2, 3});
  const DecodedRequest decoded = Decoded(request, *ServedOnPaper(spec));
  REQUIRE(decoded.parts.rows.size() == 1);
  CHECK(decoded.parts.rows[0].length == 3);
}

TEST_CASE("rows of fixed shapes have no length", "[request_codec]") {
  ModelSpec spec = ToySpec();
  spec.inputs = {{.name = "x", .type = DataType::kFp32, .dims = {2}, .value_range = {}}};
  ModelInferRequest request;
  AddRaw<float>(request, "x", "FP32", {3, 2}, {1, 2, 3, 4, 5, 6});
  const DecodedRequest decoded = Decoded(request, *ServedOnPaper(spec));
  CHECK(decoded.parts.rows.size() == 3);
  CHECK(decoded.parts.client_length == 0);
  CHECK(decoded.parts.rows[2].length == 0);
  CHECK(decoded.parts.rows[2].placement.bucket == 0);
}

TEST_CASE("the wait is bounded by the timeout and by gRPC's deadline, whichever comes first", "[request_codec]") {
  struct Case {
    std::string parameters;
    Duration default_timeout;
    bool timeout_override;
    TimePoint grpc_deadline;
    TimePoint deadline;
  };
  const Duration none{0};
  const std::vector<Case> cases = {
      {"", none, true, kForever, kForever},
      {"", none, true, kNow + seconds(3), kNow + seconds(3)},
      {"", seconds(2), true, kForever, kNow + seconds(2)},
      {"", seconds(2), true, kNow + seconds(1), kNow + seconds(1)},
      {Parameter("timeout", "int64_param: 500"), none, true, kForever, kNow + microseconds(500)},
      {Parameter("timeout", "uint64_param: 500"), none, true, kForever, kNow + microseconds(500)},
      {Parameter("timeout", "int64_param: 500"), none, true, kNow + microseconds(400), kNow + microseconds(400)},
      {Parameter("timeout", "int64_param: 9000000"), seconds(2), true, kForever, kNow + seconds(9)},
      {Parameter("timeout", "int64_param: 500"), seconds(2), false, kForever, kNow + seconds(2)},
      {Parameter("timeout", "int64_param: 0"), seconds(2), true, kForever, kNow + seconds(2)},
      {Parameter("timeout", "int64_param: 0"), none, true, kForever, kForever},
      {Parameter("timeout", "int64_param: 9223372036854775807"), none, true, kForever, kForever},
      {Parameter("timeout", "int64_param: 9223372036854775807"), none, true, kNow + seconds(1), kNow + seconds(1)},
      {"", none, true, kNow - seconds(1), kNow - seconds(1)},
  };
  for (const Case& c : cases) {
    CAPTURE(c.parameters, c.default_timeout.count(), c.timeout_override, c.grpc_deadline.time_since_epoch().count());
    ModelSpec spec = ToySpec();
    spec.queue.default_timeout = c.default_timeout;
    spec.queue.timeout_override = c.timeout_override;
    CHECK(Decoded(With(c.parameters), *ServedOnPaper(spec), c.grpc_deadline).parts.deadline == c.deadline);
  }
}

TEST_CASE("a priority counts from 1 to the number of levels, anything else is the default", "[request_codec]") {
  ModelSpec spec = ToySpec();
  spec.queue.priority_levels = 3;
  spec.queue.default_priority = 2;
  const auto model = ServedOnPaper(spec);
  CHECK(Decoded(With(""), *model).parts.priority == 2);
  CHECK(Decoded(With(Parameter("priority", "int64_param: 0")), *model).parts.priority == 2);
  CHECK(Decoded(With(Parameter("priority", "int64_param: 1")), *model).parts.priority == 1);
  CHECK(Decoded(With(Parameter("priority", "uint64_param: 3")), *model).parts.priority == 3);
  CHECK(Decoded(With(Parameter("priority", "uint64_param: 4")), *model).parts.priority == 2);
  CHECK(Decoded(With(Parameter("priority", "int64_param: 9223372036854775807")), *model).parts.priority == 2);
  CHECK(Decoded(With(Parameter("priority", "int64_param: 1")), *ServedOnPaper(ToySpec())).parts.priority == 0);
}

TEST_CASE("a timeout or a priority that is no whole number is refused", "[request_codec]") {
  const auto model = ServedOnPaper(ToySpec());
  for (const std::string name : {"timeout", "priority"}) {
    for (const std::string value : {"int64_param: -1", "int64_param: -9223372036854775808", "uint64_param: 9223372036854775808",
                                    "double_param: 1.5", "double_param: 1", "string_param: '100'", "bool_param: true", ""}) {
      CAPTURE(name, value);
      CHECK(FaultOf(With(Parameter(name, value)), *model) == "parameter '" + name + "' must be a whole number of at least 0");
    }
  }
}

TEST_CASE("parameters that would change the answer's meaning are refused, unknown ones are not", "[request_codec]") {
  const std::string no_sequences = "parameter 'sequence_id' is not supported: rows are independent of each other";
  struct Case {
    std::string request;
    std::string text;
  };
  const std::vector<Case> cases = {
      {Parameter("shared_memory_region", "string_param: 'r'"),
       "parameter 'shared_memory_region' is not supported: send the contents in the message"},
      {Parameter("sequence_id", "int64_param: 7"), no_sequences},
      {Parameter("sequence_id", "uint64_param: 7"), no_sequences},
      {Parameter("sequence_id", "string_param: 'seven'"), no_sequences},
      {Parameter("sequence_id", "double_param: 7"), no_sequences},
      {Parameter("sequence_id", "bool_param: true"), no_sequences},
      {Parameter("sequence_id", "int64_param: 0"), ""},
      {Parameter("sequence_id", "string_param: ''"), ""},
      {Parameter("sequence_start", "bool_param: false"), ""},
      {Parameter("anything", "string_param: 'at all'") + Parameter("", ""), ""},
      {"outputs { name: 'row' " + Parameter("binary_data", "bool_param: true") + "}", ""},
      {"outputs { name: 'row' " + Parameter("classification", "int64_param: 3") + "}",
       "output 'row': parameter 'classification' is not supported"},
      {"outputs { name: 'row' " + Parameter("shared_memory_region", "string_param: 'r'") + "}",
       "output 'row': parameter 'shared_memory_region' is not supported"},
  };
  const auto model = ServedOnPaper(ToySpec());
  for (const Case& c : cases) {
    CAPTURE(c.request);
    CHECK(FaultOf(With(c.request), *model) == c.text);
  }
}

TEST_CASE("an explanation is asked for by the boolean", "[request_codec]") {
  const auto model = ServedOnPaper(ToySpec());
  CHECK(Decoded(With(Parameter("explain", "bool_param: true")), *model).explain);
  CHECK_FALSE(Decoded(With(Parameter("explain", "bool_param: false")), *model).explain);
  CHECK_FALSE(Decoded(With(Parameter("explain", "string_param: 'no'")), *model).explain);
}

TEST_CASE("outputs are a selection, in the order asked for", "[request_codec]") {
  const auto model = ServedOnPaper(TieredSpec());
  CHECK(Decoded(With(""), *model).outputs == std::vector<int>{0, 1});
  CHECK(Decoded(With("outputs { name: 'tokens' }"), *model).outputs == std::vector<int>{1});
  CHECK(Decoded(With("outputs { name: 'tokens' } outputs { name: 'row' }"), *model).outputs == std::vector<int>{1, 0});
  CHECK(FaultOf(With("outputs { name: 'columns' }"), *model) == "output 'columns': the model has no such output");
  CHECK(FaultOf(With("outputs { }"), *model) == "output '': the model has no such output");
  CHECK(FaultOf(With("outputs { name: 'row' } outputs { name: 'row' }"), *model) == "output 'row': it is asked for twice");
}

TEST_CASE("outputs that are not wanted are not kept", "[request_codec]") {
  const auto model = ServedOnPaper(TieredSpec());
  CHECK(Decoded(With(""), *model).parts.wanted_outputs == std::vector<bool>{true, true});
  CHECK(Decoded(With("outputs { name: 'tokens' }"), *model).parts.wanted_outputs == std::vector<bool>{false, true});
}

TEST_CASE("a request whose reply would pass the largest message is refused", "[request_codec]") {
  const auto model = ServedOnPaper(TieredSpec());
  RequestLimits limits;
  const auto fault = [&](const std::string& outputs, Bytes largest) {
    ModelInferRequest request = ToyWireRequest({Row(5), Row(5)});
    request.MergeFrom(InferRequest(outputs));
    limits.max_message_size = largest;
    const auto decoded = DecodeRequest(request, *model, limits, kNow, kForever);
    return decoded.ok() ? "" : std::string(decoded.status().message());
  };
  // Two rows: 4 floats each, and a float for each of 5 positions.
  CHECK(fault("outputs { name: 'row' }", {32}).empty());
  CHECK(fault("outputs { name: 'row' }", {31}) ==
        "output 'row': the reply to 2 rows of 5 positions would be over the limit of 31 bytes");
  CHECK(fault("outputs { name: 'tokens' }", {40}).empty());
  CHECK(fault("", {72}).empty());
  CHECK(fault("", {71}) == "output 'tokens': the reply to 2 rows of 5 positions would be over the limit of 71 bytes");
}

// A reply to a request of two rows to TieredSpec.
Reply TwoRowReply() {
  Reply reply;
  reply.shapes = {{2, 4}, {2, 1}};
  reply.outputs = {RawBytes<float>({1, 2, 3, 4, 5, 6, 7, 8}), RawBytes<float>({0.5F, 1.5F})};
  reply.report = {.batch_rows = 5,
                  .bucket = 32,
                  .padded_length = 16,
                  .queue = microseconds(70),
                  .compute = microseconds(800) + std::chrono::nanoseconds(999),
                  .estimated = KiB(64),
                  .retries = 1};
  return reply;
}

ModelInferResponse Encoded(const std::string& request_text, const ServedModel& model, const std::vector<Ids>& rows = {{1}, {2}}) {
  ModelInferRequest request = ToyWireRequest(rows);
  request.MergeFrom(InferRequest(request_text));
  ModelInferResponse response;
  EncodeReply(request, Decoded(request, model), model, TwoRowReply(), &response);
  return response;
}

void CheckIs(const ModelInferResponse& response, const std::string& text) {
  INFO(response.DebugString());
  CHECK(google::protobuf::util::MessageDifferencer::Equals(response, FromText<ModelInferResponse>(text)));
}

constexpr const char* kRowContent =
    R"("\000\000\200\077\000\000\000\100\000\000\100\100\000\000\200\100\000\000\240\100\000\000\300\100\000\000\340\100\000\000\000\101")";
constexpr const char* kTokensContent = R"("\000\000\000\077\000\000\300\077")";

TEST_CASE("a reply has the id, every output, and one raw content for each", "[request_codec]") {
  CheckIs(Encoded("id: 'a/ü 7' model_version: '3'", *ServedOnPaper(TieredSpec())),
          std::string(R"(model_name: "P" model_version: "3" id: "a/ü 7"
                         outputs { name: "row" datatype: "FP32" shape: [ 2, 4 ] }
                         outputs { name: "tokens" datatype: "FP32" shape: [ 2, 1 ] } raw_output_contents: )") +
              kRowContent + " raw_output_contents: " + kTokensContent);
}

TEST_CASE("a reply has the outputs that were selected, in their order", "[request_codec]") {
  CheckIs(Encoded("outputs { name: 'tokens' } outputs { name: 'row' }", *ServedOnPaper(TieredSpec())),
          std::string(R"(model_name: "P" model_version: "3"
                         outputs { name: "tokens" datatype: "FP32" shape: [ 2, 1 ] }
                         outputs { name: "row" datatype: "FP32" shape: [ 2, 4 ] } raw_output_contents: )") +
              kTokensContent + " raw_output_contents: " + kRowContent);
  CheckIs(Encoded("outputs { name: 'tokens' }", *ServedOnPaper(TieredSpec())), std::string(R"(model_name: "P" model_version: "3"
                         outputs { name: "tokens" datatype: "FP32" shape: [ 2, 1 ] } raw_output_contents: )") +
                                                                                   kTokensContent);
}

TEST_CASE("an explanation is integers", "[request_codec]") {
  const ModelInferResponse response =
      Encoded(Parameter("explain", "bool_param: true") + "outputs { name: 'tokens' }", *ServedOnPaper(TieredSpec()));
  CheckIs(response, std::string(R"(model_name: "P" model_version: "3"
    outputs { name: "tokens" datatype: "FP32" shape: [ 2, 1 ] }
    parameters { key: "batch_rows" value { int64_param: 5 } }
    parameters { key: "bucket" value { int64_param: 32 } }
    parameters { key: "padded_length" value { int64_param: 16 } }
    parameters { key: "queue_us" value { int64_param: 70 } }
    parameters { key: "compute_us" value { int64_param: 800 } }
    parameters { key: "estimated_bytes" value { int64_param: 65536 } }
    parameters { key: "retries" value { int64_param: 1 } }
    parameters { key: "truncated_from" value { int64_param: 0 } }
    parameters { key: "solo_rows" value { int64_param: 0 } }
    raw_output_contents: )") +
                        kTokensContent);
}

TEST_CASE("a cut is told, asked for or not", "[request_codec]") {
  const auto model = ServedOnPaper(TieredSpec());
  const ModelInferResponse plain = Encoded("", *model, {Row(80), Row(80)});
  CHECK(plain.parameters_size() == 1);
  CHECK(plain.parameters().at("truncated_from").int64_param() == 80);
  const ModelInferResponse explained = Encoded(Parameter("explain", "bool_param: true"), *model, {Row(80), Row(80)});
  CHECK(explained.parameters_size() == 9);
  CHECK(explained.parameters().at("truncated_from").int64_param() == 80);
  CHECK(Encoded("", *model, {Row(64), Row(64)}).parameters().empty());
}

TEST_CASE("rows that run alone are told where an explanation is asked for", "[request_codec]") {
  const auto model = ServedOnPaper(TieredSpec());
  CHECK(Encoded("", *model, {Row(150), Row(150)}).parameters().empty());
  const ModelInferResponse explained = Encoded(Parameter("explain", "bool_param: true"), *model, {Row(150), Row(150)});
  CHECK(explained.parameters().at("solo_rows").int64_param() == 2);
  CHECK(explained.parameters().at("truncated_from").int64_param() == 0);
}

TEST_CASE("a model that answers in place of another says so", "[request_codec]") {
  const auto model = ServedOnPaper(TieredSpec());
  const ModelInferRequest request = ToyWireRequest({{1, 2}});
  DecodedRequest decoded = Decoded(request, *model);
  decoded.outputs.clear();
  decoded.served_by = "P";
  ModelInferResponse response;
  EncodeReply(request, decoded, *model, {}, &response);
  CHECK(response.parameters().at("served_by").string_param() == "P");
}

TEST_CASE("rows beyond the last bucket are counted by their treatment, also where one refuses the request", "[request_codec]") {
  const auto model = ServedOnPaper(TieredSpec());
  const auto mask = [](std::int64_t ones) {
    Ids row = Row(250, 0);
    std::fill_n(row.begin(), ones, 1);
    return row;
  };
  const auto tail_of = [&](const std::vector<Ids>& masks) {
    TailRows tail;
    const ModelInferRequest request = ToyWireRequest(std::vector<Ids>(masks.size(), Row(250)), masks);
    const auto decoded = DecodeRequest(request, *model, {}, kNow, kForever, &tail);
    return std::vector<std::int64_t>{tail.truncated, tail.solo, tail.refused, tail.longest, decoded.ok() ? 1 : 0};
  };
  CHECK(tail_of({mask(64), mask(1)}) == std::vector<std::int64_t>{0, 0, 0, 0, 1});
  CHECK(tail_of({mask(70), mask(64), mask(100), mask(101)}) == std::vector<std::int64_t>{2, 1, 0, 101, 1});
  CHECK(tail_of({mask(70), mask(201)}) == std::vector<std::int64_t>{1, 0, 1, 201, 0});
}

// Short, free of what is inside the server, and printable whatever the client sent.
void CheckTextIsFit(const std::string& text) {
  CAPTURE(text);
  CHECK_FALSE(text.empty());
  CHECK(text.size() < 1000);
  for (const std::string inside : {".cc", ".h:", "0x", "headroom", "std::", "absl", "protobuf"}) {
    CHECK(text.find(inside) == std::string::npos);
  }
  CHECK(std::none_of(text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; }));
}

TEST_CASE("error texts stay short and printable whatever the request holds", "[request_codec]") {
  const auto model = ServedOnPaper(ToySpec());
  for (const std::string& junk :
       {std::string(1'000'000, '\xFF'), std::string(5000, '\0'), std::string(300, '\n'), std::string("ü'\"\\")}) {
    ModelInferRequest unknown_input = ToyWireRequest({{1}});
    unknown_input.mutable_inputs(0)->set_name(junk);
    CheckTextIsFit(FaultOf(unknown_input, *model));

    ModelInferRequest wrong_type = ToyWireRequest({{1}});
    wrong_type.mutable_inputs(0)->set_datatype(junk);
    CheckTextIsFit(FaultOf(wrong_type, *model));

    ModelInferRequest unknown_output = ToyWireRequest({{1}});
    unknown_output.add_outputs()->set_name(junk);
    CheckTextIsFit(FaultOf(unknown_output, *model));
  }
  RequestLimits generous;
  generous.max_rank = 64;
  ModelInferRequest deep = ToyWireRequest({{1}});
  for (int i = 0; i < 60; ++i) deep.mutable_inputs(0)->add_shape(std::numeric_limits<std::int64_t>::min());
  CheckTextIsFit(std::string(DecodeRequest(deep, *model, generous, kNow, kForever).status().message()));

  ModelSpec spec = ToySpec();
  spec.inputs = {{.name = std::string(256, '\xFE'),
                  .type = DataType::kInt8,
                  .dims = std::vector<std::int64_t>(15, 1 << 30),
                  .value_range = {}}};
  ModelInferRequest flat;
  flat.add_inputs()->set_name(spec.inputs[0].name);
  flat.mutable_inputs(0)->set_datatype("INT8");
  for (int i = 0; i < 16; ++i) flat.mutable_inputs(0)->add_shape(std::numeric_limits<std::int64_t>::max());
  CheckTextIsFit(FaultOf(flat, *ServedOnPaper(spec)));
}

}  // namespace
}  // namespace headroom
