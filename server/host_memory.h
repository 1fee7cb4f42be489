// How much memory this process may still take from the machine or container that it runs in.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>

#include "base/bytes.h"

namespace headroom {

// The container's limit less what it uses (control group v2, then v1), or, where there is no limit, what the kernel says is
// available. `root` is "/" but in tests. INTERNAL where neither can be read.
absl::StatusOr<Bytes> AvailableHostMemory(const std::filesystem::path& root = "/");

// Processors that this process may run on; at least 1.
int UsableProcessors();

}  // namespace headroom
