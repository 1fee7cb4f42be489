// Reads the command line into options.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "server/options.h"

namespace headroom {

// The program is to print these texts and leave with this code.
struct ExitRequest {
  int code = 0;
  std::string out;  // for standard output
  std::string err;  // for standard error
};

using ParsedCommand = std::variant<ServeOptions, PlanOptions, HealthOptions, ExitRequest>;

// An option of `serve` beyond the shipped ones. It may be given several times; `read` is called for each value, in order.
struct ExtraOption {
  std::string flag;         // "--fault"
  std::string placeholder;  // "NAME[=VALUE]"
  std::string help;
  std::function<absl::Status(const std::string& value)> read;
};

// What the arguments ask for. The options are valid: Validate finds no fault in them.
//   --help, --version: ExitRequest with code 0 and the text for standard output.
//   A wrong argument: code 2 and at most three lines for standard error; the first names every option that is wrong, and why.
//   No verb: code 2 and the help for standard error.
ParsedCommand ParseCommandLine(int argc, const char* const* argv, const std::vector<ExtraOption>& extra = {});

}  // namespace headroom
