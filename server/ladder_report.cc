#include "server/ladder_report.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/log.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

bool PadsToBuckets(const ServedModel& model) {
  return std::any_of(model.instances.begin(), model.instances.end(),
                     [](const ModelInstance& instance) { return instance.ladder.ShapesToCalibrate().step == 0; });
}

double RowsOf(const LengthCounts& lengths) {
  double rows = 0;
  for (const LengthCount& of : lengths) rows += of.rows;
  return rows;
}

Json AsJson(const std::vector<std::int64_t>& buckets, const LadderCost& cost) {
  return {{"buckets", buckets},
          {"computed_tokens", std::llround(cost.computed_tokens)},
          {"useful_tokens", std::llround(cost.useful_tokens)},
          {"useful_token_share", cost.useful_share()}};
}

}  // namespace

std::string LadderAsConfig(const std::vector<std::int64_t>& buckets) {
  return absl::StrCat("sequence { buckets: [ ", absl::StrJoin(buckets, ", "), " ] }");
}

std::string LaddersAsJson(const std::vector<ModelLadder>& ladders) {
  Json models = Json::array();
  for (const ModelLadder& ladder : ladders) {
    Json json = {{"name", ladder.model},
                 {"version", absl::StrCat(ladder.version)},
                 {"rows", std::llround(RowsOf(ladder.lengths))},
                 {"pads_to_buckets", ladder.pads_to_buckets},
                 {"present", nullptr},
                 {"proposed", nullptr},
                 {"saves_share", nullptr}};
    if (ladder.advice) {
      json["present"] = AsJson(ladder.advice->buckets, ladder.advice->cost);
      json["proposed"] = AsJson(ladder.advice->proposed, ladder.advice->proposed_cost);
      json["proposed"]["config"] = LadderAsConfig(ladder.advice->proposed);
      json["saves_share"] = ladder.advice->saves();
    }
    models.push_back(std::move(json));
  }
  return Json{{"models", models}}.dump(2) + "\n";
}

std::string LengthsAsCsv(const LengthCounts& lengths) {
  std::string text = "length,count\n";
  for (const auto& [length, rows] : lengths) absl::StrAppend(&text, length, ",", std::llround(rows), "\n");
  return text;
}

std::vector<ModelLadder> LadderReport::Ladders() {
  std::vector<ModelLadder> ladders;
  for (const CatalogEntry& entry : catalog_.Served()) {
    const ServedModel& model = *entry.model;
    if (!model.spec->variable_length()) continue;
    ModelLadder& ladder = ladders.emplace_back();
    ladder.model = model.spec->name;
    ladder.version = model.version;
    ladder.pads_to_buckets = PadsToBuckets(model);
    ladder.lengths = model.lengths->Counts();
    ladder.advice = AdviceFor(model, ladder.lengths);
  }
  return ladders;
}

std::optional<LadderAdvice> LadderReport::AdviceFor(const ServedModel& model, const LengthCounts& lengths) {
  const SequenceSpec& sequence = model.spec->sequence;
  const LengthCounts batched = BatchedLengths(lengths, sequence);
  if (RowsOf(batched) < kEnoughRows) return std::nullopt;
  const TimePoint now = clock_.Now();
  MutexLock lock(mutex_);
  const auto [entry, fresh] = kept_.try_emplace(model.spec->name);
  Kept& kept = entry->second;
  if (fresh || kept.version != model.version || now >= After(kept.made, kKeepFor)) {
    kept = {model.version, now, AdviseLadder(batched, sequence.buckets, sequence.buckets.size())};
  }
  return kept.advice;
}

void LadderReport::Look(const ResourceReading& reading) {
  if (reading.time < next_look_) return;
  next_look_ = After(reading.time, kKeepFor);
  for (const ModelLadder& ladder : Ladders()) {
    if (!ladder.pads_to_buckets || !ladder.advice || ladder.advice->saves() < kWorthALine) continue;
    RateLimit& line = lines_.try_emplace(ladder.model, std::chrono::hours(1)).first->second;
    if (!line.Pass(reading.time)) continue;
    Log(LogLevel::kInfo, "other buckets would compute fewer tokens",
        {{"model", ladder.model},
         {"saves", absl::StrFormat("%.1f %%", 100 * ladder.advice->saves())},
         {"present", absl::StrJoin(ladder.advice->buckets, ",")},
         {"proposed", LadderAsConfig(ladder.advice->proposed)}});
  }
}

}  // namespace headroom
