#include "server/card_presets.h"

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace headroom {
namespace {

TEST_CASE("cards are named, or written as a size and a capability", "[plan]") {
  const std::vector<std::pair<std::string, std::vector<PlanCard>>> cases = {
      {"t4", {{"t4", MiB(15'095), "7.5"}}},
      {"A100-80GB", {{"a100-80gb", MiB(81'037), "8.0"}}},
      {"16GiB", {{"16GiB", GiB(16), "8.0"}}},
      {"1.5gib:7.5", {{"1.5gib:7.5", MiB(1536), "7.5"}}},
      {"h200,640MiB:90", {{"h200", MiB(143'156), "9.0"}, {"640MiB:90", MiB(640), "90"}}},
  };
  for (const auto& [text, cards] : cases) {
    CAPTURE(text);
    const auto read = ParsePlanCards(text);
    REQUIRE(read.ok());
    CHECK(*read == cards);
  }
}

TEST_CASE("every preset can be run dry", "[plan]") {
  for (const std::string name : {"t4", "l4", "a10g", "a100-80gb", "h100", "h200"}) {
    CAPTURE(name);
    const auto card = ParsePlanCards(name);
    REQUIRE(card.ok());
    // The same by its size and capability, which are checked.
    CHECK(ParsePlanCards(absl::StrCat(card->front().memory.count, "B:", card->front().capability)).ok());
  }
}

TEST_CASE("what is no card is refused and quoted, and those that are known are listed", "[plan]") {
  for (const std::string text : {"", "t5", "t4:7.5", "0GiB", "-1GiB", "16GiB:", "16GiB:1.0", "16GiB:8.0:8.0", "t4,,l4", "t4,",
                                 "99999999GiB", "17592186044417B", "rtx 4090"}) {
    CAPTURE(text);
    CHECK(ParsePlanCards(text).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(ParsePlanCards("t4,t\n5").status().message() ==
        "must be t4, l4, a10g, a100-80gb, h100, h200 or a size such as 16GiB or 16GiB:8.0, not \"t\\n5\"");
}

}  // namespace
}  // namespace headroom
