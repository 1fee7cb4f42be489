#include "server/host_needs.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <catch2/catch.hpp>

#include "test/server/wire_request.h"

namespace headroom {
namespace {

HostNeeds NeedsOfMessage(const inference::ModelInferRequest& message, const ModelSpec& spec) {
  const std::string bytes = message.SerializeAsString();
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  RequestEnvelope envelope;
  REQUIRE(ScanInferRequest(stream, {}, envelope).ok());
  return NeedsOf(envelope, {static_cast<std::int64_t>(bytes.size())}, spec, {});
}

ModelSpec PerTokenSpec() {
  ModelSpec spec = ToySpec();
  spec.outputs.push_back({.name = "tokens", .type = DataType::kFp32, .dims = {kSequenceAxis}});
  return spec;
}

TEST_CASE("a raw message is counted twice, with a little for each row", "[host_needs]") {
  const inference::ModelInferRequest message = ToyWireRequest({Row(100), Row(100)});
  const Bytes size{static_cast<std::int64_t>(message.ByteSizeLong())};
  const HostNeeds needs = NeedsOfMessage(message, ToySpec());
  // One input, of whose shape each dimension takes a byte.
  CHECK(needs.request == size + size + KiB(16) + Bytes{2 * 256 + 256 + 2 * 32});
  // 2 rows × 4 floats, and their copy.
  CHECK(needs.reply == Bytes{2 * (2 * 4 * 4)});
}

TEST_CASE("a reply along the sequence axis is as long as the client's inputs", "[host_needs]") {
  const inference::ModelInferRequest message = ToyWireRequest({Row(100), Row(100), Row(100)});
  CHECK(NeedsOfMessage(message, PerTokenSpec()).reply == Bytes{2 * (3 * 4 * 4 + 3 * 100 * 4)});
}

TEST_CASE("only outputs that are asked for are counted", "[host_needs]") {
  inference::ModelInferRequest message = ToyWireRequest({Row(100)});
  message.add_outputs()->set_name("row");
  CHECK(NeedsOfMessage(message, PerTokenSpec()).reply == Bytes{2 * (4 * 4)});
}

TEST_CASE("typed contents may grow, and are counted so", "[host_needs]") {
  inference::ModelInferRequest message = InferRequest(R"(inputs { name: "input_ids" datatype: "INT64" shape: [ 1, 1000 ] })");
  for (int i = 0; i < 1000; ++i) message.mutable_inputs(0)->mutable_contents()->add_int64_contents(1);
  const Bytes size{static_cast<std::int64_t>(message.ByteSizeLong())};
  const HostNeeds needs = NeedsOfMessage(message, ToySpec());
  CHECK(needs.request >= size + size + Bytes{24 * 1000});
  CHECK(needs.request <= size + size + Bytes{24 * 1010} + KiB(17));
}

TEST_CASE("what grows in a parameter or a shape is counted before it is parsed", "[host_needs]") {
  inference::ModelInferRequest message = ToyWireRequest({{1, 2}});
  // Groups that nobody asked for: a set of fields each.
  std::string value;
  SECTION("empty groups in a parameter") {
    for (int i = 0; i < 1000; ++i) value += "\x13\x14";
  }
  SECTION("groups with a number in them") {
    for (int i = 0; i < 1000; ++i) value += "\x13\x10\x03\x14";
  }
  SECTION("a shape of thousands of dimensions") {
    for (int i = 0; i < 4000; ++i) message.mutable_inputs(0)->add_shape(1);
  }
  SECTION("tensors of next to no bytes") {
    for (int i = 0; i < 60; ++i) {
      message.add_inputs();
      message.add_outputs();
    }
  }
  REQUIRE((*message.mutable_parameters())["priority"].ParseFromString(value));
  const std::string bytes = message.SerializeAsString();
  inference::ModelInferRequest parsed;
  REQUIRE(parsed.ParseFromString(bytes));
  const auto held = static_cast<std::int64_t>(bytes.size() + parsed.SpaceUsedLong());
  CHECK(NeedsOfMessage(message, ToySpec()).request >= Bytes{held});
}

TEST_CASE("shapes that decoding will refuse do not make the needs absurd", "[host_needs]") {
  for (const char* const shape :
       {"[ 1, 4611686018427387904 ]", "[ 4611686018427387904, 2 ]", "[ -1, 5 ]", "[ 1000000000, 5 ]", "[ 5 ]"}) {
    INFO(shape);
    const auto message = InferRequest(std::string(R"(inputs { name: "input_ids" datatype: "INT64" shape: )") + shape + " }");
    CHECK(NeedsOfMessage(message, PerTokenSpec()).total() < KiB(32));
  }
}

}  // namespace
}  // namespace headroom
