// absl::Status → gRPC status and the outcome that is counted: the error table, in one place.
#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/status.h>

#include "batching/batch_observer.h"

namespace headroom {

// Same code, same text.
grpc::Status ToGrpc(const absl::Status& status);

// The outcome of a request that was refused before it was queued.
Outcome OutcomeOfRefusal(const absl::Status& status);

// gRPC's own retry hint: trailing metadata `grpc-retry-pushback-ms`.
inline constexpr const char* kRetryPushback = "grpc-retry-pushback-ms";

}  // namespace headroom
