// `headroom serve`: puts the parts together, runs them, and takes them apart again in order.
#pragma once

#include "server/options.h"
#include "server/program.h"

namespace headroom {

// Serves until SIGTERM or SIGINT. 0 after a drain; 1 and one line a fault on stderr where it cannot serve; 3 where a device was
// lost.
int ServeCommand(const ServeOptions& options, const ProgramHooks& hooks);

}  // namespace headroom
