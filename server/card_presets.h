// The cards that `headroom plan --card` knows by name, and how any other is written.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "base/bytes.h"

namespace headroom {

// A card as far as memory depends on it: libraries choose kernels and workspaces by the compute capability.
struct PlanCard {
  std::string name;        // as it was asked for: "t4", "16GiB:8.0"
  Bytes memory{0};         // as the driver tells it to a process
  std::string capability;  // "8.0"

  friend bool operator==(const PlanCard&, const PlanCard&) = default;
};

// Reads "t4", "16GiB", "16GiB:8.0" and several of them with commas between; names in any case. A size alone has capability 8.0.
// INVALID_ARGUMENT, quoting the part, for anything else.
absl::StatusOr<std::vector<PlanCard>> ParsePlanCards(const std::string& text);

}  // namespace headroom
