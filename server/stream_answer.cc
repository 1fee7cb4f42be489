#include "server/stream_answer.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <array>
#include <vector>

#include "proto/open_inference.pb.h"

namespace headroom {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

void WrapReply(grpc::ByteBuffer& reply) {
  // A field that holds a message is its tag, its length and its bytes; so the head is put before what is there.
  std::array<std::uint8_t, kStreamOverhead> head{};
  std::uint8_t* end = WireFormatLite::WriteTagToArray(inference::ModelStreamInferResponse::kInferResponseFieldNumber,
                                                      WireFormatLite::WIRETYPE_LENGTH_DELIMITED, head.data());
  end = CodedOutputStream::WriteVarint32ToArray(static_cast<std::uint32_t>(reply.Length()), end);
  std::vector<grpc::Slice> slices;
  // Fails only for what cannot be decompressed, which a reply of our own never is.
  if (reply.Valid()) reply.Dump(&slices).ok();
  slices.insert(slices.begin(), grpc::Slice(head.data(), static_cast<std::size_t>(end - head.data())));
  grpc::ByteBuffer whole(slices.data(), slices.size());
  reply.Swap(&whole);
}

void WriteError(const std::string& id, const absl::Status& status, std::optional<Duration> retry_after, grpc::ByteBuffer& answer) {
  inference::ModelStreamInferResponse message;
  const std::string code = absl::StatusCodeToString(status.code());
  // Clients take an empty text for success.
  message.set_error_message(status.message().empty() ? code : std::string(status.message()));
  auto* const response = message.mutable_infer_response();
  response->set_id(id);
  (*response->mutable_parameters())["status"].set_string_param(code);
  if (retry_after) {
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(*retry_after).count();
    (*response->mutable_parameters())["retry_after_ms"].set_int64_param(milliseconds);
  }
  bool own_buffer = false;
  grpc::SerializationTraits<inference::ModelStreamInferResponse>::Serialize(message, &answer, &own_buffer).ok();
}

}  // namespace headroom
