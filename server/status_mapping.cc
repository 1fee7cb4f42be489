#include "server/status_mapping.h"

#include <string>

namespace headroom {

grpc::Status ToGrpc(const absl::Status& status) {
  // The two enumerations share their numbers by design.
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

Outcome OutcomeOfRefusal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument: return Outcome::kInvalid;
    case absl::StatusCode::kNotFound: return Outcome::kNotFound;
    case absl::StatusCode::kUnavailable: return Outcome::kUnavailable;
    case absl::StatusCode::kDeadlineExceeded: return Outcome::kExpired;
    case absl::StatusCode::kCancelled: return Outcome::kCancelled;
    case absl::StatusCode::kResourceExhausted: return Outcome::kQueueFull;
    default: return Outcome::kFailed;
  }
}

}  // namespace headroom
