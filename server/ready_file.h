// Tells whoever started the server where it listens, once it serves.
#pragma once

#include <absl/status/status.h>

#include <optional>
#include <string>

#include "server/options.h"

namespace headroom {

// Writes {"grpc": "host:port", "http": "host:port"}, with "management" where there is such an address, and moves it into place
// whole. An error names --ready-file and the path.
absl::Status WriteReadyFile(const std::string& path, const Address& grpc, const Address& http,
                            const std::optional<Address>& management = std::nullopt);

// Takes away what an earlier run left there, which would tell too early, and finds out before long work is done in vain whether
// WriteReadyFile can succeed. An error names --ready-file and the path.
absl::Status ClearReadyFile(const std::string& path);

}  // namespace headroom
