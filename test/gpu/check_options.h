// What the check program is told.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"

namespace headroom {

struct CheckOptions {
  std::string device = "cpu";               // or "cuda:N"
  std::filesystem::path models;             // the folder that models.py has filled
  std::optional<Bytes> memory_limit;        // what tensors may hold together; none: the whole GPU, 4 GiB of the CPU
  std::int64_t vocabulary = 0;              // of the models that read ids
  std::int64_t width = 0;                   // numbers in the encoder's answer
  std::int64_t longest = 0;                 // the last bucket
  std::int64_t max_rows = 0;                // the largest batch
  std::int64_t shapes = 500;                // how many unseen ones are compared with their estimate
  std::int64_t burst_rows = 2048;           // in the launch-day burst
  std::int64_t rounds = 1000;               // of the fragmentation check, at most
  Duration time{std::chrono::seconds(30)};  // that a check which could go on for ever takes at most
  std::uint64_t seed = 1;
  std::vector<std::string> checks;  // by name, in the order to be made
};

// INVALID_ARGUMENT with the usage in its text.
absl::StatusOr<CheckOptions> ParseCheckOptions(const std::vector<std::string>& words);

}  // namespace headroom
