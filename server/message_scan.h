// A look at the bytes of a ModelInferRequest before they are parsed: a message of a few bytes an entry would grow a hundredfold in
// memory, so what is too many is refused while it is still bytes.
#pragma once

#include <absl/status/statusor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <string>

#include "server/options.h"

namespace headroom {

// What stands in front of the tensors.
struct RequestEnvelope {
  std::string model_name;
  std::string model_version;
};

// Walks the message without keeping more of it than is returned. INVALID_ARGUMENT where it is no message, names too many inputs,
// outputs, contents, parameters or dimensions, or a name that is too long. `envelope` is filled as far as it was read.
absl::Status ScanInferRequest(google::protobuf::io::ZeroCopyInputStream& bytes, const RequestLimits& limits,
                              RequestEnvelope& envelope);

}  // namespace headroom
