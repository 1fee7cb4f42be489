#include "server/compressed_message.h"

#include <zlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace headroom {
namespace {

std::string Gzip(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// In pieces of so many bytes, as the wire may deliver it.
grpc::ByteBuffer Message(const std::string& bytes, std::size_t piece) {
  std::vector<grpc::Slice> slices;
  for (std::size_t at = 0; at < bytes.size(); at += piece) slices.emplace_back(bytes.substr(at, piece));
  return {slices.data(), slices.size()};
}

std::string TextOf(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  REQUIRE(message.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return text;
}

TEST_CASE("a compressed message becomes what it stands for, however it is cut", "[compressed_message]") {
  for (const std::size_t size : {0U, 1U, 20U, 4095U, 4096U, 4097U, 300'000U, 2'000'000U}) {
    std::string text(size, 'a');
    for (std::size_t i = 0; i < size; i += 3) text[i] = static_cast<char>(i * i / 7);
    const std::string packed = Gzip(text);
    for (const std::size_t piece : {1U, 7U, 8192U}) {
      if (packed.size() / piece > 50'000) continue;
      CAPTURE(size, piece);
      grpc::ByteBuffer message = Message(packed, piece);
      REQUIRE(Inflate(message, MiB(4)).ok());
      CHECK(TextOf(message) == text);
    }
  }
}

TEST_CASE("a message that is not compressed is left as it is", "[compressed_message]") {
  for (const std::string& text : {std::string(), std::string("\x0a\x01P"), std::string("\x1f"), std::string("\x1f\x8a")}) {
    grpc::ByteBuffer message = Message(text, 1);
    REQUIRE(Inflate(message, Bytes{1}).ok());
    CHECK(TextOf(message) == text);
  }
}

TEST_CASE("a message may expand to the limit, not a byte beyond it", "[compressed_message]") {
  const std::string packed = Gzip(std::string(100'000, '\0'));
  grpc::ByteBuffer fits = Message(packed, 64);
  CHECK(Inflate(fits, Bytes{100'000}).ok());
  grpc::ByteBuffer over = Message(packed, 64);
  const absl::Status refused = Inflate(over, Bytes{99'999});
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK(refused.message() == "the compressed request expands beyond the limit of 99999 bytes");
}

TEST_CASE("what is no whole stream is refused", "[compressed_message]") {
  const std::string packed = Gzip("a message");
  std::string spoilt = packed;
  spoilt[packed.size() - 5] = static_cast<char>(spoilt[packed.size() - 5] ^ 1);  // of the checksum
  for (const std::string& wrong : {packed.substr(0, 2), packed.substr(0, packed.size() - 1), packed + "x", packed + packed, spoilt,
                                   std::string("\x1f\x8b\x08\xe0") + packed.substr(4)}) {
    grpc::ByteBuffer message = Message(wrong, 3);
    CHECK(Inflate(message, MiB(1)).code() == absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace headroom
