#include "server/program.h"

#include <google/protobuf/stubs/logging.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "server/dry_process.h"
#include "server/fault_report.h"
#include "server/health_command.h"
#include "server/host_memory.h"
#include "server/plan_command.h"
#include "server/serve_command.h"

namespace headroom {
namespace {

int Run(int argc, const char* const* argv, const ProgramHooks& hooks) {
  // A reader of our output that has gone is no reason to end.
  std::signal(SIGPIPE, SIG_IGN);
  // Nor is a file that may not grow any more: writing to it fails, as on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  BoundMallocArenas();
  // protobuf would write a line of its own to stderr for every message that a client gets wrong.
  google::protobuf::SetLogHandler(nullptr);
  const ParsedCommand command = ParseCommandLine(argc, argv, hooks.extra_options);
  if (const auto* exit = std::get_if<ExitRequest>(&command)) {
    std::fputs(exit->out.c_str(), stdout);
    std::fputs(exit->err.c_str(), stderr);
    return exit->code;
  }
  if (const auto* serve = std::get_if<ServeOptions>(&command)) return ServeCommand(*serve, hooks);
  if (const auto* plan = std::get_if<PlanOptions>(&command)) {
    if (!plan->cards.empty()) {
      const absl::Status entered = EnterDryProcess(plan->cards, plan->card_allowance, argc, argv);
      if (!entered.ok()) return ReportFault(entered);
    }
    return PlanCommand(*plan, hooks);
  }
  return HealthCommand(std::get<HealthOptions>(command));
}

}  // namespace

int RunProgram(int argc, const char* const* argv, const ProgramHooks& hooks) {
  try {
    return Run(argc, argv, hooks);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headroom: internal error: %s\n", error.what());
    return 1;
  }
}

}  // namespace headroom
