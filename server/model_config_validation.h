// Checks of one model's configuration, beyond its being parsed. Pure: a message in, faults and warnings out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/model_config.pb.h"
#include "runtime/tensor.h"
#include "server/model_config_report.h"

namespace headroom {

// Bounds that no sensible model meets; they keep a slip of the pen from becoming a calibration that never ends.
inline constexpr std::int64_t kMaxBatchRows = 65536;
inline constexpr std::int64_t kMaxLength = 1 << 20;  // of a bucket or tier
inline constexpr int kMaxBuckets = 64;
inline constexpr int kMaxTiers = 16;
inline constexpr int kMaxTensors = 64;     // inputs, and outputs
inline constexpr int kMaxDimensions = 15;  // of one tensor, without the batch dimension
inline constexpr std::size_t kMaxTensorName = 256;
inline constexpr std::uint64_t kMaxWaitMicroseconds = 24ULL * 3600 * 1'000'000;
inline constexpr std::uint64_t kMaxPriorityLevels = 65536;
inline constexpr int kMaxInstances = 256;

// [A-Za-z0-9_-]{1,128}.
bool IsModelName(const std::string& name);

// The type as tensors have it here, or nothing where it is not served.
std::optional<DataType> ServedType(inference::DataType type);

// The index of the input whose -1 dimension is a row's length: the one with the role TOKENS, else the first that has a -1 dimension
// and is no mask; -1 where there is none.
int LengthInput(const inference::ModelConfig& config);

// Checks everything; `folder` is the name of the model's folder.
void ValidateModelConfig(const inference::ModelConfig& config, const std::string& folder, ConfigReport& report);

// The part of it about inputs and outputs.
void ValidateTensors(const inference::ModelConfig& config, ConfigReport& report);

// The longest length that a row may have: the last tier's, else the last bucket's, else that of the default buckets.
std::int64_t LongestLength(const inference::ModelConfig& config);

// `text` as a configuration would write it, in double quotes and escaped, at most 128 bytes of it; for an error text.
std::string DoubleQuoted(const std::string& text);

}  // namespace headroom
