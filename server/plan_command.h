// `headroom plan`: what a repository's models would get on the devices, measured.
#pragma once

#include "server/options.h"
#include "server/program.h"

namespace headroom {

// Prints the table, for people or as JSON, on stdout. 0, or 1 and one line a fault on stderr.
int PlanCommand(const PlanOptions& options, const ProgramHooks& hooks);

}  // namespace headroom
