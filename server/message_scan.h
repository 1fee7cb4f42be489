// A look at the bytes of a ModelInferRequest before they are parsed: a message of a few bytes an entry would grow a hundredfold in
// memory, so what is too many is refused while it is still bytes.
#pragma once

#include <absl/status/statusor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <string>
#include <vector>

#include "base/bytes.h"
#include "server/options.h"

namespace headroom {

// Bytes of a request's id that can be told before it is parsed.
inline constexpr int kMaxId = 1024;

// What can be told of a request without its contents. Names that are too long to be an input's or an output's are left empty.
struct RequestEnvelope {
  struct Input {
    std::string name;
    std::vector<std::int64_t> shape;  // as claimed, the first RequestLimits::max_rank + 1 dimensions of it
  };

  std::string model_name;
  std::string model_version;
  std::string id;  // left empty where it is longer than kMaxId: it is echoed from the message then, or not at all
  std::vector<Input> inputs;
  std::vector<std::string> outputs;  // asked for; none: all
  Bytes typed_contents{0};           // of the message's bytes, those that are typed contents
  Bytes loose{0};                    // and those of parameters and shapes, which become many times as much
};

// Walks the message without keeping more of it than is returned. INVALID_ARGUMENT where it is no message, names too many inputs,
// outputs, contents, parameters or dimensions, or a name that is too long. `envelope` is filled as far as it was read.
absl::Status ScanInferRequest(google::protobuf::io::ZeroCopyInputStream& bytes, const RequestLimits& limits,
                              RequestEnvelope& envelope);

}  // namespace headroom
