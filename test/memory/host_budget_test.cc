#include "memory/host_budget.h"

#include <catch2/catch.hpp>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace headroom {
namespace {

constexpr Bytes kAll{1000};

TEST_CASE("a budget that is not open admits nothing", "[host_budget]") {
  HostBudget budget;
  CHECK(absl::IsResourceExhausted(budget.Reserve(HostStage::kRequest, {1}).status()));
  CHECK_FALSE(budget.CouldEverFit({1}));
}

TEST_CASE("what is reserved is given back when the right is dropped", "[host_budget]") {
  HostBudget budget;
  budget.Open(kAll, {0});
  {
    const auto right = budget.Reserve(HostStage::kRequest, {700});
    REQUIRE(right.ok());
    CHECK(right->bytes() == Bytes{700});
    CHECK(budget.usage().of(HostStage::kRequest) == Bytes{700});
    CHECK_FALSE(budget.Reserve(HostStage::kRequest, {301}).ok());
    CHECK(budget.Reserve(HostStage::kRequest, {300}).ok());
  }
  CHECK(budget.usage().of(HostStage::kRequest) == Bytes{0});
  CHECK(budget.Reserve(HostStage::kRequest, kAll).ok());
}

TEST_CASE("a refusal tells what is needed and what is left, and whether it is for ever", "[host_budget]") {
  HostBudget budget;
  budget.Open(kAll, {100});
  const auto held = budget.Reserve(HostStage::kQueue, {600});
  const auto refused = budget.Reserve(HostStage::kRequest, {400});
  CHECK(std::string(refused.status().message()).find("400 bytes are needed, 300 of 900 are left") != std::string::npos);
  CHECK(budget.CouldEverFit({900}));
  CHECK_FALSE(budget.CouldEverFit({901}));
}

TEST_CASE("a right moves between stages, is split and shrunk, and the sum stays", "[host_budget]") {
  HostBudget budget;
  budget.Open(kAll, {0});
  HostReservation request = budget.Reserve(HostStage::kRequest, {800}).value();
  HostReservation reply = request.Split(HostStage::kReply, {300});
  CHECK(budget.usage().of(HostStage::kRequest) == Bytes{500});
  CHECK(budget.usage().of(HostStage::kReply) == Bytes{300});
  request.MoveTo(HostStage::kQueue);
  CHECK(budget.usage().of(HostStage::kRequest) == Bytes{0});
  CHECK(budget.usage().of(HostStage::kQueue) == Bytes{500});
  request.Shrink({200});
  request.Shrink({600});
  CHECK(request.bytes() == Bytes{200});
  CHECK(budget.Reserve(HostStage::kRequest, {500}).ok());
  CHECK_FALSE(budget.Reserve(HostStage::kRequest, {501}).ok());
  request = HostReservation();
  CHECK(budget.usage().of(HostStage::kQueue) == Bytes{0});
  reply = std::move(request);
  CHECK(budget.usage().of(HostStage::kReply) == Bytes{0});
}

TEST_CASE("staging comes out of what is set aside, and is never refused", "[host_budget]") {
  HostBudget budget;
  budget.Open(kAll, {200});
  const HostReservation within = budget.ReserveStaging({150});
  CHECK(budget.usage().of(HostStage::kStaging) == Bytes{150});
  // Set aside already: a newcomer has as much as before.
  CHECK(budget.Reserve(HostStage::kRequest, {800}).ok());
  const HostReservation beyond = budget.ReserveStaging({150});
  CHECK_FALSE(budget.Reserve(HostStage::kRequest, {701}).ok());
  CHECK(budget.Reserve(HostStage::kRequest, {700}).ok());
}

TEST_CASE("sizes that clients make up do not wrap", "[host_budget]") {
  HostBudget budget;
  budget.Open(kAll, {0});
  const auto held = budget.Reserve(HostStage::kRequest, {999});
  CHECK_FALSE(budget.Reserve(HostStage::kRequest, {std::numeric_limits<std::int64_t>::max()}).ok());
}

TEST_CASE("whatever happens, the limit is kept and all comes back", "[host_budget][property]") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto draw = [&](std::int64_t below) { return std::uniform_int_distribution<std::int64_t>(0, below - 1)(random); };
  HostBudget budget;
  budget.Open(kAll, {100});
  std::vector<HostReservation> rights;
  for (int step = 0; step < 20'000; ++step) {
    switch (draw(5)) {
      case 0:
      case 1: {
        auto right = budget.Reserve(HostStage::kRequest, {draw(400)});
        if (right.ok()) rights.push_back(*std::move(right));
        break;
      }
      case 2:
        if (!rights.empty()) rights.erase(rights.begin() + draw(static_cast<std::int64_t>(rights.size())));
        break;
      case 3:
        if (!rights.empty()) rights.push_back(rights.front().Split(HostStage::kReply, {rights.front().bytes().count / 2}));
        break;
      default:
        if (!rights.empty()) rights.back().MoveTo(HostStage::kQueue);
    }
    const HostUsage usage = budget.usage();
    Bytes held{0};
    for (const HostReservation& right : rights) held += right.bytes();
    REQUIRE(usage.of(HostStage::kRequest) + usage.of(HostStage::kQueue) + usage.of(HostStage::kReply) == held);
    REQUIRE(held <= Bytes{900});
  }
  rights.clear();
  for (const Bytes bytes : budget.usage().reserved) CHECK(bytes == Bytes{0});
}

}  // namespace
}  // namespace headroom
