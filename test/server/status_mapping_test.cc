#include "server/status_mapping.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace headroom {
namespace {

TEST_CASE("a status keeps its code and its text on the wire", "[status_mapping]") {
  const std::vector<std::pair<absl::StatusCode, grpc::StatusCode>> cases = {
      {absl::StatusCode::kOk, grpc::StatusCode::OK},
      {absl::StatusCode::kCancelled, grpc::StatusCode::CANCELLED},
      {absl::StatusCode::kUnknown, grpc::StatusCode::UNKNOWN},
      {absl::StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT},
      {absl::StatusCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED},
      {absl::StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND},
      {absl::StatusCode::kAlreadyExists, grpc::StatusCode::ALREADY_EXISTS},
      {absl::StatusCode::kPermissionDenied, grpc::StatusCode::PERMISSION_DENIED},
      {absl::StatusCode::kUnauthenticated, grpc::StatusCode::UNAUTHENTICATED},
      {absl::StatusCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {absl::StatusCode::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION},
      {absl::StatusCode::kAborted, grpc::StatusCode::ABORTED},
      {absl::StatusCode::kOutOfRange, grpc::StatusCode::OUT_OF_RANGE},
      {absl::StatusCode::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED},
      {absl::StatusCode::kInternal, grpc::StatusCode::INTERNAL},
      {absl::StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE},
      {absl::StatusCode::kDataLoss, grpc::StatusCode::DATA_LOSS},
  };
  for (const auto& [ours, theirs] : cases) {
    const grpc::Status status = ToGrpc(absl::Status(ours, "why"));
    CHECK(status.error_code() == theirs);
    CHECK(status.error_message() == (ours == absl::StatusCode::kOk ? "" : "why"));
  }
}

TEST_CASE("a refusal is counted by its code", "[status_mapping]") {
  const std::vector<std::pair<absl::Status, Outcome>> cases = {
      {absl::InvalidArgumentError(""), Outcome::kInvalid},
      {absl::NotFoundError(""), Outcome::kNotFound},
      {absl::ResourceExhaustedError(""), Outcome::kQueueFull},
      {absl::DeadlineExceededError(""), Outcome::kExpired},
      {absl::CancelledError(""), Outcome::kCancelled},
      {absl::UnavailableError(""), Outcome::kUnavailable},
      {absl::InternalError(""), Outcome::kFailed},
      {absl::UnknownError(""), Outcome::kFailed},
  };
  for (const auto& [status, outcome] : cases) {
    CAPTURE(status.ToString());
    CHECK(OutcomeOfRefusal(status) == outcome);
  }
}

}  // namespace
}  // namespace headroom
