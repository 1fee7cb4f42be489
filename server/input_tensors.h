// The tensors of a request, checked against a model's inputs before they cost memory.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <vector>

#include "batching/request.h"
#include "proto/open_inference.pb.h"
#include "runtime/model_spec.h"
#include "server/options.h"

namespace headroom {

struct InputTensors {
  std::vector<RequestInput> inputs;   // one for each of the spec's; views into the message, or into `converted`
  std::vector<HostTensor> converted;  // typed contents, as dense bytes
  std::int64_t rows = 1;
  std::int64_t length = 0;  // of the sequence axis, as the client made it; 0 for a model of fixed shapes
};

// Binds the message's inputs to the spec's by name and checks names, types, ranks, shapes and byte counts; all that is read of
// the contents is their size. `message` outlives what is returned. INVALID_ARGUMENT names the input and the limit.
absl::StatusOr<InputTensors> BindInputs(const inference::ModelInferRequest& message, const ModelSpec& spec,
                                        const RequestLimits& limits);

// The true length of each row: up to its last unmasked position, or the client's length where there is no mask. INVALID_ARGUMENT
// naming the mask where a row's is all zero.
absl::StatusOr<std::vector<std::int64_t>> TrueLengths(const InputTensors& tensors, const ModelSpec& spec);

// Checks that every value within the true lengths keeps its input's declared range; NaN and infinities never do.
absl::Status CheckValues(const InputTensors& tensors, const ModelSpec& spec, const std::vector<std::int64_t>& lengths);

}  // namespace headroom
