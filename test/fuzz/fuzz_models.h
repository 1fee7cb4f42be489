// The models that messages are decoded for: one for each way in which rows can be made.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "batching/served_model.h"
#include "test/server/wire_request.h"

namespace headroom {

// The toy P with a mask, two outputs, a tier that cuts and a tier that runs alone.
inline ModelSpec FuzzedTiers() {
  ModelSpec spec = ToySpec("P");
  spec.outputs.push_back({.name = "tokens", .type = DataType::kFp32, .dims = {kSequenceAxis}});
  spec.sequence.buckets = {8, 16};
  spec.sequence.tiers = {{24, TierAction::kTruncate}, {40, TierAction::kSolo}};
  spec.queue.priority_levels = 3;
  spec.queue.default_priority = 2;
  return spec;
}

// Fixed shapes, an input of every type.
inline ModelSpec FuzzedTypes() {
  ModelSpec spec;
  spec.name = "types";
  spec.max_batch_rows = 4;
  spec.inputs = {{.name = "x", .type = DataType::kFp32, .dims = {2, 2}, .value_range = ValueRange{-1, 1}}};
  for (const DataType type : {DataType::kBool, DataType::kInt8, DataType::kInt16, DataType::kInt32, DataType::kInt64,
                              DataType::kUint8, DataType::kFp16, DataType::kBf16, DataType::kFp64}) {
    spec.inputs.push_back({.name = NameOf(type),
                           .type = type,
                           .dims = {2},
                           .optional = true,
                           .value_range = type == DataType::kBool ? std::nullopt : std::optional(ValueRange{-100, 100}),
                           .pad_value = 1});
  }
  spec.outputs = {{.name = "y", .type = DataType::kFp32, .dims = {3}}, {.name = "z", .type = DataType::kInt8, .dims = {2, 1}}};
  return spec;
}

// The sequence axis between others, and no mask.
inline ModelSpec FuzzedFrames() {
  ModelSpec spec;
  spec.name = "frames";
  spec.max_batch_rows = 4;
  spec.inputs = {
      {.name = "frames",
       .type = DataType::kFp32,
       .dims = {2, kSequenceAxis, 2},
       .role = InputRole::kTokens,
       .value_range = {},
       .pad_value = -1},
      {.name = "marks", .type = DataType::kUint8, .dims = {kSequenceAxis}, .optional = true, .value_range = {}, .pad_value = 7}};
  spec.outputs = {{.name = "scores", .type = DataType::kFp64, .dims = {2, kSequenceAxis}}};
  spec.sequence.buckets = {4, 12};
  spec.sequence.padding = Padding::kMultipleOf8;
  spec.sequence.padding_safe = true;
  return spec;
}

// No batch dimension.
inline ModelSpec FuzzedSingle() {
  ModelSpec spec;
  spec.name = "single";
  spec.inputs = {{.name = "x", .type = DataType::kFp32, .dims = {4}, .value_range = {}}};
  spec.outputs = {{.name = "y", .type = DataType::kFp32, .dims = {4}}};
  return spec;
}

// The model of that name; where there is none, one that depends on the name alone.
inline const ServedModel& FuzzedModel(std::string_view name) {
  static const std::vector<std::shared_ptr<const ServedModel>> models = {
      ServedOnPaper(FuzzedTiers()), ServedOnPaper(FuzzedTypes()), ServedOnPaper(FuzzedFrames()), ServedOnPaper(FuzzedSingle())};
  std::size_t sum = 0;
  for (const char letter : name) sum += static_cast<unsigned char>(letter);
  for (const auto& model : models) {
    if (model->spec->name == name) return *model;
  }
  return *models[sum % models.size()];
}

}  // namespace headroom
