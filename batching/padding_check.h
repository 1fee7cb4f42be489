// Whether padding and batching change a model's answers, tried out at load.
#pragma once

#include <absl/status/status.h>

#include <memory>

#include "batching/bucket_ladder.h"
#include "runtime/device.h"

namespace headroom {

// Runs a few rows of different lengths alone and unpadded, and again padded to their bucket and together, and compares.
// OK where the answers agree but for float noise (and `noise`, what a model that computes in half precision may be off by), where
// the model is never padded, and where `device` computes nothing. FAILED_PRECONDITION, with the word padding, where they differ:
// the model ignores its mask. INTERNAL where a run fails.
absl::Status CheckPadding(const std::shared_ptr<const ModelSpec>& spec, const BucketLadder& ladder, const LoadedModel& model,
                          Device& device, double noise = 0);

}  // namespace headroom
