#include "runtime/sample_batch.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace headroom {

HostTensor AllocateInput(const ModelSpec& spec, const InputSpec& input, const BatchShape& shape, Device& device) {
  HostTensor tensor;
  tensor.type = input.type;
  if (spec.has_batch_dimension()) tensor.shape.push_back(shape.rows);
  for (const std::int64_t dim : input.dims) tensor.shape.push_back(dim == kSequenceAxis ? shape.length : dim);
  tensor.data = device.AllocateStaging(tensor.size());
  return tensor;
}

double SampleValue(const InputSpec& input, double random) {
  const ValueRange range = input.value_range.value_or(ValueRange{0, 1});
  if (IsFloatingPoint(input.type)) {
    // Halves first: the span of a range such as ±1e308 overflows. Bounds beyond the float types' own are clipped.
    const double low = std::max(range.min, -1e4);
    const double high = std::max(low, std::min(range.max, 1e4));
    return std::clamp(low * (1 - random) + high * random, range.min, range.max);
  }
  const double low = std::ceil(range.min);
  const double high = std::min(std::floor(range.max), low + 1e6);
  return std::min(low + std::floor(random * (high - low + 1)), high);
}

void FillWithSamples(const InputSpec& input, HostTensor& tensor, std::mt19937_64& generator) {
  const std::int64_t width = SizeOf(input.type);
  std::byte* to = tensor.data.get();
  for (std::int64_t i = tensor.elements(); i > 0; --i, to += width) {
    // std::uniform_real_distribution may differ between libraries; a shift does not.
    const double random = static_cast<double>(generator() >> 11U) * 0x1p-53;
    StoreElement(input.type, input.role == InputRole::kMask ? 1 : SampleValue(input, random), to);
  }
}

PaddedBatch SampleBatch(const ModelSpec& spec, const BatchShape& shape, Device& device, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  PaddedBatch batch;
  batch.shape = shape;
  for (const InputSpec& input : spec.inputs) {
    HostTensor tensor = AllocateInput(spec, input, shape, device);
    FillWithSamples(input, tensor, generator);
    batch.inputs.push_back(std::move(tensor));
  }
  return batch;
}

}  // namespace headroom
