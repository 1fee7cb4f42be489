#include <absl/status/status.h>
#include <absl/strings/str_split.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <string>
#include <vector>

#include "batching/bucket_ladder.h"
#include "server/model_config_loader.h"
#include "test/fuzz/fuzz_targets.h"

namespace headroom {
namespace {

using google::protobuf::util::MessageDifferencer;

bool Ascends(const std::vector<std::int64_t>& numbers) {
  return std::adjacent_find(numbers.begin(), numbers.end(), std::greater_equal<>()) == numbers.end();
}

void RequireDims(const std::vector<std::int64_t>& dims) {
  Require(!dims.empty(), "a tensor has dimensions");
  Require(std::count(dims.begin(), dims.end(), kSequenceAxis) <= 1, "at most one sequence axis");
  Require(std::all_of(dims.begin(), dims.end(), [](std::int64_t dim) { return dim >= 1 || dim == kSequenceAxis; }),
          "dimensions are positive");
}

void RequireSound(const ModelSpec& spec) {
  Require(!spec.inputs.empty() && !spec.outputs.empty(), "a model has inputs and outputs");
  for (const InputSpec& input : spec.inputs) {
    RequireDims(input.dims);
    Require(!input.value_range || input.value_range->min <= input.value_range->max, "a range is not empty");
  }
  for (const OutputSpec& output : spec.outputs) RequireDims(output.dims);
  Require(spec.max_batch_rows >= 0 && spec.queue.max_rows > 0, "rows are positive");
  Require(spec.safety_margin >= 0 && spec.safety_margin < 1e6, "the margin is a share");
  Require(spec.queue.default_timeout >= Duration::zero() && spec.queue.max_delay >= Duration::zero(), "times are not negative");
  Require(spec.queue.default_priority <= spec.queue.priority_levels, "the default priority is one of the levels");
  if (!spec.variable_length()) return;
  const SequenceSpec& sequence = spec.sequence;
  Require(!sequence.buckets.empty() && sequence.buckets.front() >= 1 && Ascends(sequence.buckets), "buckets ascend");
  std::int64_t last = sequence.buckets.back();
  for (const Tier& tier : sequence.tiers) {
    Require(tier.up_to > last, "tiers ascend from the last bucket");
    last = tier.up_to;
  }
  const BucketLadder ladder(spec, DeviceKind::kCpu);
  for (const std::int64_t length : {std::int64_t{1}, sequence.buckets.back(), last}) {
    const auto placed = ladder.Place(length);
    Require(placed.ok() && placed->kept_length <= length, "every length up to the last tier has its place");
    Require(ladder.PaddedLength(placed->bucket, placed->kept_length) >= placed->kept_length, "padding does not cut");
  }
  Require(ladder.longest() == last && !ladder.Place(last + 1).ok(), "no length beyond the last tier has one");
}

}  // namespace

void FuzzModelConfig(std::string_view bytes) {
  const google::protobuf::LogSilencer no_word_about_damaged_text;
  const auto loaded = LoadModelConfig(std::string(bytes), "model");
  if (!loaded.ok()) {
    Require(absl::IsInvalidArgument(loaded.status()), "a refusal is INVALID_ARGUMENT");
    const std::vector<std::string> lines = absl::StrSplit(std::string(loaded.status().message()), '\n');
    Require(std::none_of(lines.begin(), lines.end(), [](const std::string& line) { return line.empty(); }), "each fault has words");
    return;
  }
  RequireSound(loaded->spec);
  // What the ModelConfig call answers is a configuration that says the same.
  std::string printed;
  Require(google::protobuf::TextFormat::PrintToString(loaded->config, &printed), "a configuration can be printed");
  const auto again = LoadModelConfig(printed, "model");
  Require(again.ok(), "the configuration in force can be read");
  Require(MessageDifferencer::Equivalent(again->config, loaded->config),
          "the configuration in force says the same when it is read");
}

}  // namespace headroom
