// The SHA-256 of an open file: the identity of a model, by which its calibration is kept.
#pragma once

#include <absl/status/statusor.h>

#include <string>

namespace headroom {

// Reads `file` from its beginning to its end; 64 lower-case hexadecimal digits. INTERNAL where it cannot be read.
absl::StatusOr<std::string> Sha256(int file);

}  // namespace headroom
