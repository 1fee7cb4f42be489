// SHA-256: the identity of a model, by which its calibration is kept and by which a manifest knows it.
#pragma once

#include <absl/status/statusor.h>

#include <string>

namespace headroom {

// Reads `file` from its beginning to its end; 64 lower-case hexadecimal digits. INTERNAL where it cannot be read.
absl::StatusOr<std::string> Sha256(int file);

// The same of bytes in memory.
absl::StatusOr<std::string> Sha256Of(const std::string& bytes);

}  // namespace headroom
