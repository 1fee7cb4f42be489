// What a model's configuration says, as plain data: names, shapes and rules, already validated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "runtime/tensor.h"

namespace headroom {

// What an input means to batching.
enum class InputRole {
  kOther,   // carried as it is; padded with pad_value where it has a sequence axis
  kTokens,  // its sequence axis is the row's length
  kMask,    // 1 where the row is real; made from the true lengths where a client leaves it out
};

// Inclusive bounds that a client's values must keep.
struct ValueRange {
  double min = 0;
  double max = 0;
};

// The sequence axis in `dims`.
inline constexpr std::int64_t kSequenceAxis = -1;

struct InputSpec {
  std::string name;
  DataType type = DataType::kFp32;
  std::vector<std::int64_t> dims;  // of one row, without the batch dimension; at most one is kSequenceAxis
  InputRole role = InputRole::kOther;
  bool optional = false;  // left out: a mask is made from the lengths, another input is filled with pad_value
  std::optional<ValueRange> value_range;
  double pad_value = 0;
};

struct OutputSpec {
  std::string name;
  DataType type = DataType::kFp32;
  std::vector<std::int64_t> dims;  // as an input's; a kSequenceAxis is cut back to the row's length
};

enum class Padding {
  kBucket,       // to the bucket
  kMultipleOf8,  // to the next multiple of 8, at most the bucket
  kExact,        // to the longest row of the batch
  kAuto,         // kBucket on CUDA, kMultipleOf8 on the CPU
};

enum class PaddingCheck { kRefuse, kWarn, kOff };

enum class TierAction {
  kTruncate,  // keeps the head, of the last bucket's length, and says so
  kSolo,      // runs alone, unpadded
};

// Treatment of rows beyond the last bucket (or the tier before) up to a length.
struct Tier {
  std::int64_t up_to = 0;
  TierAction action = TierAction::kTruncate;
};

struct SequenceSpec {
  std::vector<std::int64_t> buckets = {32, 64, 128, 256, 512};  // ascending, ≥ 1
  Padding padding = Padding::kAuto;
  PaddingCheck padding_check = PaddingCheck::kRefuse;
  bool padding_safe = false;  // padding without a mask does not change the answers
  std::vector<Tier> tiers;    // ascending
};

struct QueueSpec {
  std::int64_t max_rows = 1024;              // waiting rows
  Bytes max_bytes{0};                        // of the inputs of waiting rows; 0: no bound of the model's own
  std::int64_t max_calls = 0;                // running and waiting; 0: no bound
  Duration default_timeout{0};               // 0: none
  bool timeout_override = true;              // a request's own timeout counts
  Duration max_delay{0};                     // how long a row may wait for company
  std::vector<std::int64_t> preferred_rows;  // a batch of so many rows does not wait for more
  std::int64_t priority_levels = 0;          // 0: no priorities
  std::int64_t default_priority = 0;
};

// The number format that a model computes in.
enum class Precision {
  kFp32,      // as its file has it
  kBf16,      // floating weights are converted, and all that is computed from them
  kFp16,      // the same in the other half
  kAutocast,  // in half precision what gains by it (products, convolutions), all else as the file has it
};

// "FP32", "BF16", "FP16", "AUTOCAST".
const char* NameOf(Precision precision);

struct PrecisionSpec {
  Precision wanted = Precision::kFp32;
  bool automatic = false;  // the fastest that keeps the bounds, of which there is then at least one; `wanted` says nothing
  // Bounds on how far answers may be from those in kFp32, on made-up rows at load. A model beyond them is not served so.
  std::optional<double> min_cosine;  // of any row of any output, as a vector
  std::optional<double> max_error;   // of any element, absolute

  // Whether there is anything but kFp32 to be tried.
  bool converts() const { return automatic || wanted != Precision::kFp32; }
};

struct ModelSpec {
  std::string name;
  std::int64_t max_batch_rows = 0;  // 0: the model has no batch dimension and runs one request at a time
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  SequenceSpec sequence;        // meaningful where variable_length()
  double safety_margin = 0.05;  // reserved on top of an estimate, as a share of it
  std::string fallback_model;   // answers instead where memory is very short; empty: none does
  QueueSpec queue;
  std::int64_t instances = 0;  // workers a device that the configuration asks for; 0: no wish
  bool meant_for_cpu = false;  // a graph that names a GPU may be rewritten for the CPU
  PrecisionSpec precision;

  bool has_batch_dimension() const { return max_batch_rows > 0; }
  std::int64_t largest_batch() const { return max_batch_rows > 0 ? max_batch_rows : 1; }
  // True where some input has a sequence axis.
  bool variable_length() const;
  // The index of the MASK input, or -1.
  int mask_index() const;
  // True where rows of different lengths may share a batch.
  bool may_pad() const { return sequence.padding_safe || mask_index() >= 0; }
};

// The index of kSequenceAxis in `dims`, or -1.
int SequenceAxisOf(const std::vector<std::int64_t>& dims);

}  // namespace headroom
