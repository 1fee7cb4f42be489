// Rows → one padded batch, and its outputs → rows. The only place that knows where a row's bytes lie in a batch.
#pragma once

#include <absl/status/status.h>

#include <span>
#include <vector>

#include "batching/request_queue.h"
#include "runtime/device.h"

namespace headroom {

// The rows, in this order, padded to `shape.length` on the right: masks with 0, other inputs with their pad_value. A mask that was
// left out is 1 up to a row's length; another input that was left out is pad_value throughout.
PaddedBatch Collate(const ModelSpec& spec, std::span<const QueuedRow> rows, const BatchShape& shape, Device& device);

// Copies each row's part of `outputs` into its request, a sequence axis cut back to the row's kept length. The outputs have
// passed CheckOutputs for `shape`.
void Scatter(const ModelSpec& spec, std::span<const QueuedRow> rows, const BatchShape& shape,
             const std::vector<HostTensor>& outputs);

}  // namespace headroom
