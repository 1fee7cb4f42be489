#include "server/message_scan.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "proto/open_inference.pb.h"

namespace headroom {
namespace {

struct Scanned {
  absl::Status status;
  RequestEnvelope envelope;
};

Scanned Scan(const std::string& bytes, const RequestLimits& limits = {}) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()), /*block_size=*/7);
  Scanned scanned;
  scanned.status = ScanInferRequest(stream, limits, scanned.envelope);
  return scanned;
}

inference::ModelInferRequest Ordinary() {
  inference::ModelInferRequest message;
  message.set_model_name("P");
  message.set_model_version("3");
  message.set_id(std::string(300, 'x'));
  (*message.mutable_parameters())["timeout"].set_int64_param(5);
  auto* const input = message.add_inputs();
  input->set_name("input_ids");
  input->set_datatype("INT64");
  input->add_shape(1);
  input->add_shape(2);
  (*input->mutable_parameters())["note"].set_string_param("kept");
  message.add_outputs()->set_name("row");
  message.add_raw_input_contents(std::string(16, '\0'));
  return message;
}

std::string Times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST_CASE("an ordinary message passes and tells whom it is for", "[message_scan]") {
  const Scanned scanned = Scan(Ordinary().SerializeAsString());
  CHECK(scanned.status.ok());
  CHECK(scanned.envelope.model_name == "P");
  CHECK(scanned.envelope.model_version == "3");
  CHECK(scanned.envelope.id == std::string(300, 'x'));
  CHECK(Scan("").status.ok());
}

TEST_CASE("a scan tells the names and shapes, and how much of it is typed contents", "[message_scan]") {
  inference::ModelInferRequest message = Ordinary();
  message.add_outputs()->set_name(std::string(200, 'o'));
  const RequestEnvelope raw = Scan(message.SerializeAsString()).envelope;
  REQUIRE(raw.inputs.size() == 1);
  CHECK(raw.inputs[0].name == "input_ids");
  CHECK(raw.inputs[0].shape == std::vector<std::int64_t>{1, 2});
  // A name that is too long for any output is not kept.
  CHECK(raw.outputs == std::vector<std::string>{"row", ""});
  CHECK(raw.typed_contents == Bytes{0});

  message.mutable_inputs(0)->add_shape(-7);
  for (int i = 0; i < 40; ++i) message.mutable_inputs(0)->add_shape(1);
  for (int i = 0; i < 100; ++i) message.mutable_inputs(0)->mutable_contents()->add_int64_contents(1);
  const RequestEnvelope typed = Scan(message.SerializeAsString()).envelope;
  CHECK(typed.inputs[0].shape.size() == 17);
  CHECK(typed.inputs[0].shape[2] == -7);
  CHECK(typed.typed_contents == Bytes{static_cast<std::int64_t>(message.inputs(0).contents().ByteSizeLong())});
}

TEST_CASE("an id that is too long to be told is passed over", "[message_scan]") {
  inference::ModelInferRequest message = Ordinary();
  message.set_id(std::string(kMaxId, 'i'));
  CHECK(Scan(message.SerializeAsString()).envelope.id == message.id());
  message.set_id(std::string(kMaxId + 1, 'i'));
  const Scanned scanned = Scan(message.SerializeAsString());
  CHECK(scanned.status.ok());
  CHECK(scanned.envelope.id.empty());
  CHECK(scanned.envelope.model_version == "3");
}

TEST_CASE("typed contents of thousands of numbers pass, packed or one by one", "[message_scan]") {
  inference::ModelInferRequest message = Ordinary();
  for (int i = 0; i < 5000; ++i) message.mutable_inputs(0)->mutable_contents()->add_int64_contents(i);
  CHECK(Scan(message.SerializeAsString()).status.ok());
  // Field 5 of the message (an input), field 5 of it (contents), 2,000 times field 3 as a varint.
  const std::string numbers = Times(2000, "\x18\x07");
  const std::string contents = "\x2a\xa0\x1f" + numbers;
  CHECK(Scan("\x2a\xa3\x1f" + contents).status.ok());
}

TEST_CASE("what is too many is refused while it is still bytes", "[message_scan]") {
  struct Case {
    const char* what;
    std::string bytes;
    const char* word;
  };
  const std::string nothing("\x00", 1);
  const Case cases[] = {
      {"inputs of no bytes", Times(65, "\x2a" + nothing), "inputs"},
      {"outputs of no bytes", Times(65, "\x32" + nothing), "outputs"},
      {"raw contents of no bytes", Times(65, "\x3a" + nothing), "raw_input_contents"},
      {"parameters of no bytes", Times(257, "\x22" + nothing), "parameters"},
      {"parameters inside one input", "\x2a\x82\x04" + Times(257, "\x22" + nothing), "parameters"},
      {"parameters inside one output", "\x32\x82\x04" + Times(257, "\x12" + nothing), "parameters"},
      {"strings inside contents", std::string("\x2a\x04\x2a\x02\x42") + nothing, "bytes_contents"},
      {"dimensions, packed", "\x2a\x84\x20\x1a\x81\x20" + Times(4097, "\x01"), "dimensions"},
      {"dimensions, one by one", "\x2a\x82\x40" + Times(4097, "\x18\x01"), "dimensions"},
      {"fields that nobody knows", Times(65, "\x98\x06\x01"), "unknown fields"},
      {"fields that nobody knows, inside one input", "\x2a\xc3\x01" + Times(65, "\x98\x06\x01"), "unknown fields"},
      {"bytes of one parameter", "\x22\x81\x80\x04" + std::string(65537, 'x'), "bytes of parameters"},
      {"bytes of many parameters", Times(3, "\x22\x80\x80\x02" + std::string(32768, 'x')), "bytes of parameters"},
      {"bytes of an id", "\x1a\x81\x20" + std::string(4097, 'x'), "the id has 4097 bytes"},
      {"bytes of a datatype", "\x2a\x85\x80\x04\x12\x81\x80\x04" + std::string(65537, 'x'), "the datatype has 65537 bytes"},
      // Each would be parsed as fields that nobody knows, of which a message of 64 MiB could hold 30 million.
      {"an id that is a number", "\x18\x01", "not a ModelInferRequest"},
      {"a datatype that is a number", std::string("\x2a\x02\x10\x01"), "not a ModelInferRequest"},
      {"a parameter that is a number", "\x20\x01", "not a ModelInferRequest"},
      {"a name that is a number", "\x08\x01", "not a ModelInferRequest"},
      {"an input that is a number", "\x28\x01", "not a ModelInferRequest"},
      {"a group, and fields inside it", "\x9b\x06" + Times(1000, "\x08\x01") + "\x9c\x06", "not a ModelInferRequest"},
      {"a group inside an input", "\x2a\x06\x9b\x06\x08\x01\x9c\x06", "not a ModelInferRequest"},
      {"a group inside contents", "\x2a\x08\x2a\x06\x9b\x06\x08\x01\x9c\x06", "not a ModelInferRequest"},
      {"the end of a group that has not begun", "\x9c\x06", "not a ModelInferRequest"},
      {"field number 0", std::string("\x00\x01", 2), "not a ModelInferRequest"},
      {"a length beyond the message",
       "\x0a\x7f"
       "P",
       "not a ModelInferRequest"},
      {"a length beyond an int", "\x3a\xff\xff\xff\xff\x0f", "not a ModelInferRequest"},
      {"a varint without an end", "\x28" + std::string(11, '\xff'), "not a ModelInferRequest"},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    const Scanned scanned = Scan(c.bytes);
    CHECK(scanned.status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(scanned.status.message()).find(c.word) != std::string::npos);
  }
}

TEST_CASE("a name that is too long is refused by its length, not read", "[message_scan]") {
  inference::ModelInferRequest message;
  message.set_model_name(std::string(129, 'n'));
  const Scanned scanned = Scan(message.SerializeAsString());
  CHECK(scanned.status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(scanned.envelope.model_name.empty());
}

TEST_CASE("a message that is cut off anywhere is refused or still whole, and never reads beyond its end", "[message_scan]") {
  const std::string whole = Ordinary().SerializeAsString();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string head = whole.substr(0, length);
    inference::ModelInferRequest parsed;
    INFO("cut to " << length);
    CHECK(Scan(head).status.ok() == parsed.ParseFromString(head));
  }
}

}  // namespace
}  // namespace headroom
