#include "base/status_macros.h"

#include <catch2/catch.hpp>
#include <memory>

namespace headroom {
namespace {

absl::StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return absl::InvalidArgumentError("negative");
  return std::make_unique<int>(value);
}

absl::StatusOr<int> Sum(int a, int b) {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> first, Make(a));
  ASSIGN_OR_RETURN(const std::unique_ptr<int> second, Make(b));
  return *first + *second;
}

absl::Status Check(int a, bool& went_on) {
  RETURN_IF_ERROR(Sum(a, 1).status());
  went_on = true;
  return absl::OkStatus();
}

TEST_CASE("a value is taken out of its status, moved", "[status]") { CHECK(Sum(2, 3).value() == 5); }

TEST_CASE("an error returns early, as it is", "[status]") {
  CHECK(Sum(2, -1).status() == absl::InvalidArgumentError("negative"));
  bool went_on = false;
  CHECK(Check(-1, went_on).message() == "negative");
  CHECK_FALSE(went_on);
  CHECK(Check(1, went_on).ok());
  CHECK(went_on);
}

}  // namespace
}  // namespace headroom
