#include <absl/status/status.h>
#include <absl/strings/str_split.h>

#include <cmath>
#include <string>

#include "server/traffic_file.h"
#include "test/fuzz/fuzz_targets.h"

namespace headroom {
namespace {

constexpr char kMix[] = "mix:";

TrafficLimits FuzzedLimits() {
  TrafficLimits limits;
  limits.rows = 200;
  limits.length = 4096;
  limits.quantile_columns = 6;
  limits.faults = 5;
  return limits;
}

void RequireSound(const TrafficLengths& traffic, const TrafficLimits& limits) {
  Require(!traffic.weights.empty() && std::isfinite(traffic.total) && traffic.total > 0, "there are rows");
  double sum = 0;
  for (const auto& [length, weight] : traffic.weights) {
    Require(length >= 1 && length <= limits.length, "a length within the limit");
    Require(std::isfinite(weight) && weight > 0, "a weight above 0");
    sum += weight;
  }
  Require(std::abs(sum - traffic.total) <= 1e-6 * sum, "the total is that of the weights");
  std::int64_t last = 0;
  for (const double quantile : {0.0, 0.1, 0.5, 0.99, 1.0}) {
    const std::int64_t length = LengthAt(traffic, quantile);
    Require(traffic.weights.contains(length) && length >= last, "quantiles are lengths that occur, and do not fall");
    last = length;
  }
}

}  // namespace

void FuzzTraffic(std::string_view bytes) {
  static const TrafficLimits limits = FuzzedLimits();
  ColumnWeights mix;
  if (bytes.starts_with(kMix)) {
    bytes.remove_prefix(std::size(kMix) - 1);
    const std::string_view line = bytes.substr(0, bytes.find('\n'));
    bytes.remove_prefix(std::min(bytes.size(), line.size() + 1));
    const auto weights = ParseColumnWeights(std::string(line));
    if (!weights.ok()) return Require(absl::IsInvalidArgument(weights.status()), "a refusal is INVALID_ARGUMENT");
    for (const auto& [column, weight] : *weights) Require(!column.empty() && weight > 0 && std::isfinite(weight), "a weight");
    mix = *weights;
  }
  const auto traffic = ParseTraffic("t.csv", std::string(bytes), mix, limits);
  if (traffic.ok()) return RequireSound(*traffic, limits);
  Require(absl::IsInvalidArgument(traffic.status()), "a refusal is INVALID_ARGUMENT");
  const std::vector<std::string> lines = absl::StrSplit(std::string(traffic.status().message()), '\n');
  Require(lines.size() <= limits.faults + 1, "the faults that are told are bounded");
  for (const std::string& line : lines) Require(line.starts_with("t.csv:"), "each fault tells where it is");
}

}  // namespace headroom
