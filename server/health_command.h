// `headroom health`: for a container's HEALTHCHECK.
#pragma once

#include "server/options.h"

namespace headroom {

// 0 where the server at the address says SERVING within the timeout; else 1 and one line on stderr.
int HealthCommand(const HealthOptions& options);

}  // namespace headroom
