// Starts this program again on dry cards, for `headroom plan --card`.
#pragma once

#include <absl/status/status.h>

#include <vector>

#include "base/bytes.h"
#include "server/card_presets.h"

namespace headroom {

// Returns OK at once where this process runs on exactly these cards. Else replaces it by the same program with the same arguments,
// on dry CUDA cards of which `held` each is taken, and returns only to say why it could not. To be called before there are threads,
// open files or anything else that ends with the process.
absl::Status EnterDryProcess(const std::vector<PlanCard>& cards, Bytes held, int argc, const char* const* argv);

}  // namespace headroom
