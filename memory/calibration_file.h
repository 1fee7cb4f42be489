// Keeps a calibration between starts, as a small text file.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <string>

#include "memory/calibration.h"

namespace headroom {

// Writes `calibration` under `key`, one line that names everything it depends on. The file appears whole or not at all.
// INTERNAL where it cannot be written.
absl::Status KeepCalibration(const std::filesystem::path& file, const std::string& key, const Calibration& calibration);

// What was kept under exactly `key`. NOT_FOUND where there is nothing, another key, or a file that is not whole: measure again.
absl::StatusOr<Calibration> KeptCalibration(const std::filesystem::path& file, const std::string& key);

// Whether `kept` tells all that a calibration within `limit` would: a smaller limit needs no more, a larger one may.
bool IsEnough(const Calibration& kept, Bytes limit);

}  // namespace headroom
