#include "server/fault_report.h"

#include <absl/strings/str_split.h>

#include <cstdio>
#include <string>
#include <vector>

namespace headroom {

int ReportFault(const absl::Status& status) {
  const std::vector<std::string> lines = absl::StrSplit(status.message(), '\n', absl::SkipEmpty());
  for (const std::string& line : lines) std::fprintf(stderr, "headroom: %s\n", line.c_str());
  return 1;
}

}  // namespace headroom
