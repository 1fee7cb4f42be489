// config.pbtxt to ModelSpec: the one place where a model's configuration is read.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "proto/model_config.pb.h"
#include "runtime/model_spec.h"

namespace headroom {

struct LoadedConfig {
  ModelSpec spec;
  // The configuration in force, with defaults filled in: what the ModelConfig call answers.
  inference::ModelConfig config;
  // One line each: "optimization: is ignored: …".
  std::vector<std::string> warnings;
};

// Reads the text of a config.pbtxt for the model whose folder is `folder`.
//
// INVALID_ARGUMENT lists every fault, one a line: "line 7, column 3: …" or "line 7: …" where the text does not parse, else
// "sequence.buckets[1]: 32 does not ascend from 64". An unknown field is a fault, and does not hide the others. Nothing is written
// to stderr.
//
// Where several inputs have a -1 dimension and none has the role TOKENS, the first of them that is no mask gets it.
absl::StatusOr<LoadedConfig> LoadModelConfig(const std::string& text, const std::string& folder);

}  // namespace headroom
