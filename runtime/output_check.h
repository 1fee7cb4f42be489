// Whether a module's outputs are what its configuration declares.
#pragma once

#include <absl/status/status.h>

#include <vector>

#include "runtime/device.h"

namespace headroom {

// OK where there is one output for each of `spec.outputs`, of the declared type, with as many rows as the batch (where the
// model has a batch dimension) and the declared dims, a sequence axis being `shape.length` long.
// FAILED_PRECONDITION naming the output, what it is and what was declared.
absl::Status CheckOutputs(const ModelSpec& spec, const BatchShape& shape, const std::vector<HostTensor>& outputs);

}  // namespace headroom
