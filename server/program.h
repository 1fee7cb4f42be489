// The program: reads the command line and does what it asks for. The shipped binary and the fault-injecting one differ in the
// hooks alone.
#pragma once

#include <functional>
#include <vector>

#include "server/command_line.h"
#include "server/device_set.h"

namespace headroom {

struct ProgramHooks {
  std::vector<ExtraOption> extra_options;
  WrapDevice wrap_device;            // around each device of `serve`
  std::function<void()> when_ready;  // before the first request is let in
};

// The process' exit code: 0 done, 1 cannot serve, 2 wrong usage, 3 a device was lost.
int RunProgram(int argc, const char* const* argv, const ProgramHooks& hooks = {});

}  // namespace headroom
