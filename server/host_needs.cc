#include "server/host_needs.h"

#include <algorithm>
#include <vector>

namespace headroom {
namespace {

constexpr std::int64_t kTypedGrowth = 24;
constexpr std::int64_t kLooseGrowth = 32;
constexpr Bytes kPerTensor{256};
constexpr Bytes kPerRow{256};
// The call, gRPC's part of it, the parsed names and shapes.
constexpr Bytes kPerRequest = KiB(16);
// The parser reserves a string's whole size up to this; a longer one grows by doubling, beside what it has grown from.
constexpr Bytes kReservedAtOnce{50'000'000};

struct CommonShape {
  std::int64_t rows = 1;
  std::int64_t length = 0;
};

// The rows and the length that the inputs claim: the most that any of them does.
CommonShape ClaimedShape(const RequestEnvelope& envelope, const ModelSpec& spec) {
  CommonShape claimed;
  for (const RequestEnvelope::Input& input : envelope.inputs) {
    const auto known =
        std::find_if(spec.inputs.begin(), spec.inputs.end(), [&](const InputSpec& i) { return i.name == input.name; });
    const std::size_t batch_dimensions = spec.has_batch_dimension() ? 1 : 0;
    if (known == spec.inputs.end() || input.shape.size() != known->dims.size() + batch_dimensions) continue;
    if (spec.has_batch_dimension()) claimed.rows = std::max(claimed.rows, input.shape[0]);
    const int axis = SequenceAxisOf(known->dims);
    if (axis >= 0) claimed.length = std::max(claimed.length, input.shape[static_cast<std::size_t>(axis) + batch_dimensions]);
  }
  return claimed;
}

bool IsAskedFor(const RequestEnvelope& envelope, const OutputSpec& output) {
  const auto& names = envelope.outputs;
  return names.empty() || std::find(names.begin(), names.end(), output.name) != names.end();
}

// 0 where it would be larger than a message may be: decoding refuses that.
Bytes OutputBytes(const RequestEnvelope& envelope, const CommonShape& shape, const ModelSpec& spec, const RequestLimits& limits) {
  Bytes total{0};
  for (const OutputSpec& output : spec.outputs) {
    if (!IsAskedFor(envelope, output)) continue;
    std::vector<std::int64_t> factors = {SizeOf(output.type), shape.rows};
    for (const std::int64_t dim : output.dims) factors.push_back(dim == kSequenceAxis ? shape.length : dim);
    const auto bytes = CheckedProduct(factors);
    if (!bytes.ok() || *bytes > limits.max_message_size.count - total.count) return {0};
    total += Bytes{*bytes};
  }
  return total;
}

}  // namespace

HostNeeds NeedsOf(const RequestEnvelope& envelope, Bytes message_size, const ModelSpec& spec, const RequestLimits& limits) {
  const CommonShape shape = ClaimedShape(envelope, spec);
  HostNeeds needs;
  const Bytes parsed = message_size <= kReservedAtOnce ? message_size : Scale(message_size, 3);
  needs.request = kPerRequest + message_size + parsed + Scale(envelope.typed_contents, kTypedGrowth) +
                  Scale(envelope.loose, kLooseGrowth) +
                  Scale(kPerTensor, static_cast<double>(envelope.inputs.size() + envelope.outputs.size()));
  if (shape.rows > limits.max_request_rows) return needs;  // decoding refuses it
  needs.request += Scale(kPerRow, static_cast<double>(shape.rows));
  needs.reply = Scale(OutputBytes(envelope, shape, spec, limits), 2);
  return needs;
}

}  // namespace headroom
