// What the measurements declare of a model whose file says nothing of itself.
#pragma once

#include <cstdint>

#include "runtime/model_spec.h"

namespace headroom {

// Token ids from 0 to `highest_id` and a mask, in batches of up to `most_rows`; one output, whose declared shape makes no
// difference where nobody compares it.
inline ModelSpec TokenModel(double highest_id, std::int64_t most_rows) {
  ModelSpec spec;
  spec.name = "model";
  spec.max_batch_rows = most_rows;
  for (const InputRole role : {InputRole::kTokens, InputRole::kMask}) {
    InputSpec& input = spec.inputs.emplace_back();
    input.name = role == InputRole::kTokens ? "input_ids" : "attention_mask";
    input.type = DataType::kInt64;
    input.dims = {kSequenceAxis};
    input.role = role;
    if (role == InputRole::kTokens) input.value_range = ValueRange{0, highest_id};
  }
  spec.outputs.push_back({.name = "embedding", .type = DataType::kFp32, .dims = {1}});
  return spec;
}

}  // namespace headroom
