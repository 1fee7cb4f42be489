// The answers of a stream, as bytes: each a ModelStreamInferResponse.
#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/byte_buffer.h>

#include <optional>
#include <string>

#include "base/clock.h"

namespace headroom {

// What a ModelInferResponse grows by at most when it becomes an answer of a stream.
inline constexpr std::size_t kStreamOverhead = 16;

// Turns the bytes of a ModelInferResponse into those of an answer that holds it. Nothing is copied.
void WrapReply(grpc::ByteBuffer& reply);

// The answer that says an error: its text in error_message and, as a stream has no status and no trailing metadata for each call,
// beside the request's id two parameters: `status`, the name of the code, and `retry_after_ms` where something is known of that.
void WriteError(const std::string& id, const absl::Status& status, std::optional<Duration> retry_after, grpc::ByteBuffer& answer);

}  // namespace headroom
