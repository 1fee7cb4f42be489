#include "server/stream_answer.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "proto/open_inference.pb.h"

namespace headroom {
namespace {

using std::chrono::microseconds;

template <class Message>
grpc::ByteBuffer BytesOf(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own_buffer = false;
  CHECK(grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own_buffer).ok());
  return bytes;
}

inference::ModelStreamInferResponse Read(grpc::ByteBuffer bytes) {
  inference::ModelStreamInferResponse message;
  CHECK(grpc::SerializationTraits<inference::ModelStreamInferResponse>::Deserialize(&bytes, &message).ok());
  return message;
}

TEST_CASE("a reply becomes an answer of a stream, of whatever size, at the cost that is stated", "[stream]") {
  for (const std::size_t size : std::vector<std::size_t>{0, 1, 100, 127, 128, 16'383, 16'384, 3'000'000}) {
    inference::ModelInferResponse reply;
    reply.set_id("an id");
    reply.add_raw_output_contents(std::string(size, 'x'));
    grpc::ByteBuffer bytes = BytesOf(reply);
    const std::size_t before = bytes.Length();
    WrapReply(bytes);
    CHECK(bytes.Length() <= before + kStreamOverhead);
    const auto answer = Read(bytes);
    CHECK(answer.error_message().empty());
    CHECK(answer.infer_response().SerializeAsString() == reply.SerializeAsString());
  }
}

TEST_CASE("a reply of no bytes is still a reply", "[stream]") {
  grpc::ByteBuffer nothing;
  WrapReply(nothing);
  const auto answer = Read(nothing);
  CHECK(answer.has_infer_response());
  CHECK(answer.error_message().empty());
}

TEST_CASE("an error names the request, its code and when to come again", "[stream]") {
  grpc::ByteBuffer bytes;
  WriteError("seven", absl::ResourceExhaustedError("the queue is full"), microseconds(1500), bytes);
  const auto answer = Read(bytes);
  CHECK(answer.error_message() == "the queue is full");
  CHECK(answer.infer_response().id() == "seven");
  CHECK(answer.infer_response().parameters().at("status").string_param() == "RESOURCE_EXHAUSTED");
  CHECK(answer.infer_response().parameters().at("retry_after_ms").int64_param() == 2);
  CHECK(answer.infer_response().outputs_size() == 0);
}

TEST_CASE("an error without a text or a hint is an error all the same", "[stream]") {
  grpc::ByteBuffer bytes;
  WriteError("", absl::InternalError(""), std::nullopt, bytes);
  const auto answer = Read(bytes);
  CHECK(answer.error_message() == "INTERNAL");
  CHECK_FALSE(answer.infer_response().parameters().contains("retry_after_ms"));
}

}  // namespace
}  // namespace headroom
