// What a run of several arms has found: figures, ratios with their intervals, whether it can be trusted.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/figures/round_figures.h"

namespace headroom {

struct ArmRounds {
  std::string name;
  std::string address;
  std::vector<RoundFigures> rounds;
};

// A sender that is later than this at p99 has not sent what was asked for.
inline constexpr Duration kMostLag = std::chrono::milliseconds(1);

// "arms": the figures of each over all rounds; "ratios": the first arm's figures ÷ each other's, from as many rounds, with 95 %
// intervals; "sender_on_time": false where some arm's sender lagged by more than kMostLag at p99. All arms have as many rounds.
nlohmann::ordered_json LoadReport(const std::vector<ArmRounds>& arms, std::uint64_t seed);

// The same as a table for people.
std::string TableOf(const nlohmann::ordered_json& report);

}  // namespace headroom
