// How a command that cannot go on says so.
#pragma once

#include <absl/status/status.h>

namespace headroom {

// Prints the status' text on stderr, each line of it after "headroom: "; the exit code 1.
int ReportFault(const absl::Status& status);

}  // namespace headroom
