// Tells whoever started the server where it listens, once it serves.
#pragma once

#include <absl/status/status.h>

#include <string>

#include "server/options.h"

namespace headroom {

// Writes {"grpc": "host:port", "http": "host:port"} and moves it into place whole. An error names --ready-file and the path.
absl::Status WriteReadyFile(const std::string& path, const Address& grpc, const Address& http);

// Whether WriteReadyFile can succeed, found out before long work is done in vain.
absl::Status CheckReadyFile(const std::string& path);

}  // namespace headroom
