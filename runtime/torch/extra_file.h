// Reads a file that a TorchScript module carries beside its code, without loading the module.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string>

#include "base/bytes.h"

namespace headroom {

// More than any configuration needs; a module may carry whole vocabularies.
inline constexpr Bytes kLongestExtraFile = MiB(1);

// The content of the extra file `name` of the module in `descriptor`, an open file; nothing where it carries none of that name.
// Runs no code of the module's. INVALID_ARGUMENT where the file is no archive of a module, or the extra file is longer than
// kLongestExtraFile; texts name no path. Any thread; leaves the descriptor's position alone.
absl::StatusOr<std::optional<std::string>> ReadExtraFile(int descriptor, const std::string& name);

}  // namespace headroom
