// Whether the fallback models that configurations name can stand in for the models that name them.
#pragma once

#include <absl/status/status.h>

#include <vector>

#include "server/model_repository.h"

namespace headroom {

// INVALID_ARGUMENT with all faults, one a line: a fallback that is not in the repository or is the model itself, that has other
// inputs or outputs, or that takes less: shorter rows or fewer values.
absl::Status CheckFallbackModels(const std::vector<RepositoryModel>& models);

}  // namespace headroom
