// Made-up batches that keep to a model's declared ranges, for warm-up, calibration and the padding check.
#pragma once

#include <random>

#include "runtime/device.h"

namespace headroom {

// A batch of `shape` whose rows are all as long as the batch: masks are 1, other values spread over the declared range (0 and
// 1 where none is declared), the same for the same seed.
PaddedBatch SampleBatch(const ModelSpec& spec, const BatchShape& shape, Device& device, std::uint64_t seed);

// An input of `spec` for `shape`, uninitialised; its shape has a batch dimension where the model has one.
HostTensor AllocateInput(const ModelSpec& spec, const InputSpec& input, const BatchShape& shape, Device& device);

// Fills `tensor`, of `input`'s type, with what SampleBatch says; draws one number an element.
void FillWithSamples(const InputSpec& input, HostTensor& tensor, std::mt19937_64& generator);

// A value inside the declared range for `random` in [0, 1).
double SampleValue(const InputSpec& input, double random);

}  // namespace headroom
