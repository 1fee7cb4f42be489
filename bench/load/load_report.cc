#include "bench/load/load_report.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "bench/figures/bootstrap.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

struct Percentile {
  const char* name;
  double share;
};
constexpr Percentile kPercentiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"p99.9", 0.999}};

double Rounded(double value) { return std::isfinite(value) && value != 0 ? std::stod(absl::StrFormat("%.6g", value)) : value; }

double Milliseconds(Duration duration) { return Rounded(1000 * Seconds(duration)); }

Json Percentiles(const LatencyHistogram& times) {
  Json told = Json::object();
  for (const Percentile& percentile : kPercentiles) {
    told[percentile.name] = times.count() > 0 ? Json(Milliseconds(times.Quantile(percentile.share))) : Json();
  }
  told["max"] = times.count() > 0 ? Json(Milliseconds(times.max())) : Json();
  told["mean"] = times.count() > 0 ? Json(Milliseconds(times.mean())) : Json();
  return told;
}

RoundFigures Together(const std::vector<RoundFigures>& rounds, std::span<const std::size_t> chosen) {
  RoundFigures all;
  for (const std::size_t round : chosen) all.MergeRound(rounds[round]);
  return all;
}

RoundFigures Together(const std::vector<RoundFigures>& rounds) {
  RoundFigures all;
  for (const RoundFigures& round : rounds) all.MergeRound(round);
  return all;
}

Json ArmReport(const ArmRounds& arm) {
  const RoundFigures all = Together(arm.rounds);
  Json told = {{"name", arm.name},
               {"address", arm.address},
               {"sent", all.sent},
               {"answered", all.answered},
               {"refused", all.refused},
               {"faults", all.faults},
               {"by_status", all.by_status},
               {"first_words", all.first_words},
               {"seconds", Rounded(Seconds(all.took))},
               {"answered_per_second", Rounded(all.answered_per_second())},
               {"tokens_per_second", Rounded(static_cast<double>(all.answered_tokens) / std::max(1e-9, Seconds(all.took)))},
               {"latency_ms", Percentiles(all.latency)},
               {"sender_lag_ms", Percentiles(all.lag)}};
  Json rounds = Json::array();
  for (const RoundFigures& round : arm.rounds) {
    rounds.push_back({{"answered_per_second", Rounded(round.answered_per_second())},
                      {"p50_ms", Milliseconds(round.latency.Quantile(0.5))},
                      {"p99_ms", Milliseconds(round.latency.Quantile(0.99))}});
  }
  told["rounds"] = rounds;
  return told;
}

struct Measure {
  const char* name;
  double (*of)(const RoundFigures&);
};
constexpr Measure kMeasures[] = {
    {"answered_per_second", [](const RoundFigures& all) { return all.answered_per_second(); }},
    {"p50", [](const RoundFigures& all) { return Seconds(all.latency.Quantile(0.5)); }},
    {"p99", [](const RoundFigures& all) { return Seconds(all.latency.Quantile(0.99)); }},
};

Json RatioReport(const ArmRounds& arm, const ArmRounds& to, const Measure& measure, std::uint64_t seed) {
  Random random(seed);
  const auto ratio = [&](std::span<const std::size_t> chosen) {
    return measure.of(Together(arm.rounds, chosen)) / measure.of(Together(to.rounds, chosen));
  };
  const Interval interval = Bootstrap(arm.rounds.size(), ratio, random);
  return {{"measure", measure.name},
          {"of", arm.name},
          {"to", to.name},
          {"value", Rounded(interval.value)},
          {"low", Rounded(interval.low)},
          {"high", Rounded(interval.high)}};
}

std::string Number(const Json& value) { return value.is_number() ? absl::StrFormat("%.5g", value.get<double>()) : "-"; }

}  // namespace

Json LoadReport(const std::vector<ArmRounds>& arms, std::uint64_t seed) {
  Json told = {{"arms", Json::array()}, {"ratios", Json::array()}, {"sender_on_time", true}};
  for (const ArmRounds& arm : arms) {
    told["arms"].push_back(ArmReport(arm));
    if (Together(arm.rounds).lag.Quantile(0.99) > kMostLag) told["sender_on_time"] = false;
  }
  for (std::size_t other = 1; other < arms.size(); ++other) {
    for (const Measure& measure : kMeasures) told["ratios"].push_back(RatioReport(arms.front(), arms[other], measure, seed));
  }
  return told;
}

std::string TableOf(const Json& report) {
  std::string table = absl::StrFormat("%-12s %8s %8s %8s %7s %10s %9s %9s %9s %9s %9s\n", "arm", "sent", "answered", "refused",
                                      "faults", "per second", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "lag p99");
  for (const Json& arm : report["arms"]) {
    const Json& latency = arm["latency_ms"];
    absl::StrAppendFormat(&table, "%-12s %8s %8s %8s %7s %10s %9s %9s %9s %9s %9s\n", arm["name"].get<std::string>(),
                          arm["sent"].dump(), arm["answered"].dump(), arm["refused"].dump(), arm["faults"].dump(),
                          Number(arm["answered_per_second"]), Number(latency["p50"]), Number(latency["p90"]),
                          Number(latency["p99"]), Number(latency["p99.9"]), Number(arm["sender_lag_ms"]["p99"]));
    if (const auto words = arm["first_words"].get<std::string>(); !words.empty()) absl::StrAppend(&table, "  ", words, "\n");
  }
  for (const Json& ratio : report["ratios"]) {
    absl::StrAppendFormat(&table, "%s ÷ %s, %s: %s (%s to %s)\n", ratio["of"].get<std::string>(), ratio["to"].get<std::string>(),
                          ratio["measure"].get<std::string>(), Number(ratio["value"]), Number(ratio["low"]), Number(ratio["high"]));
  }
  return table;
}

}  // namespace headroom
