// headroom_gpu_check: makes the checks that it is asked for, one after the other, in this process. test/gpu/check starts it.
//
// On stdout, a line each:
//   begin NAME                          a check begins
//   info TEXT                           for people
//   fact NAME BYTES                     for the checks to come, in another process
//   peak MODEL ROWS LENGTH ALLOCATED HELD REQUESTED
//   serving                             rows are answered from here on
//   ok|FAIL|skip  NAME  FIGURES         its end
// Exit code: 0 all are content, 1 one is not, 2 wrong usage.
#include <absl/strings/str_cat.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "test/gpu/checks.h"

namespace headroom {
namespace {

using Check = void (*)(CheckRun&, Verdict&);

const std::map<std::string, Check>& Checks() {
  static const std::map<std::string, Check> checks = {
      {"load-once", CheckLoadOnce},   {"calibration", CheckCalibration},
      {"latency", CheckLatency},      {"burst", CheckBurst},
      {"hard-limit", CheckHardLimit}, {"fragmentation", CheckFragmentation},
      {"recovery", CheckRecovery},    {"neighbour", CheckNeighbour},
      {"peaks", CheckPeaks},          {"device-lost", CheckDeviceLost},
  };
  return checks;
}

void PrintLine(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void LogToStderr(const LogEvent& event) {
  if (event.level < LogLevel::kWarning) return;
  std::string line = event.message;
  for (const auto& [name, value] : event.fields) absl::StrAppend(&line, " ", name, "=", value.text);
  std::fprintf(stderr, "%s\n", line.c_str());
}

bool Make(const std::string& name, CheckRun& run) {
  PrintLine(absl::StrCat("begin ", name));
  Verdict verdict;
  try {
    Checks().at(name)(run, verdict);
  } catch (const std::exception& error) {
    verdict.Require(false, absl::StrCat("broken off: ", error.what()));
  }
  PrintLine(verdict.Line(name));
  return !verdict.failed();
}

int Main(const std::vector<std::string>& words) {
  const auto options = ParseCheckOptions(words);
  if (!options.ok()) {
    std::fprintf(stderr, "headroom_gpu_check: %s\n", std::string(options.status().message()).c_str());
    return 2;
  }
  for (const std::string& name : options->checks) {
    if (Checks().contains(name)) continue;
    std::fprintf(stderr, "headroom_gpu_check: there is no check %s\n", name.c_str());
    return 2;
  }
  SetLogSink(LogToStderr);
  const auto run = CheckRun::Open(*options);
  if (!run.ok()) {
    std::fprintf(stderr, "headroom_gpu_check: %s\n", std::string(run.status().message()).c_str());
    return 1;
  }
  bool content = true;
  for (const std::string& name : options->checks) content = Make(name, **run) && content;
  // Destructors would call a device that may be lost.
  if (!(*run)->device().Memory().ok()) std::_Exit(content ? 0 : 1);
  return content ? 0 : 1;
}

}  // namespace

void PrintInfo(const std::string& text) { PrintLine(absl::StrCat("info ", text)); }

void PrintFact(const std::string& name, Bytes value) { PrintLine(absl::StrCat("fact ", name, " ", value.count)); }

}  // namespace headroom

int main(int argc, char** argv) { return headroom::Main({argv + 1, argv + argc}); }
