// Messages that clients have compressed.
#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/byte_buffer.h>

#include "base/bytes.h"

namespace headroom {

// Replaces a message in gzip's format by what it stands for, and leaves any other as it is: a protobuf message never begins as gzip
// does (a tag of wire type 7). Memory is taken as the message grows, up to `limit`. RESOURCE_EXHAUSTED where it would pass that,
// INVALID_ARGUMENT where it is no whole gzip stream.
absl::Status Inflate(grpc::ByteBuffer& message, Bytes limit);

}  // namespace headroom
