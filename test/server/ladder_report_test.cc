#include "server/ladder_report.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/log.h"
#include "server/length_records.h"
#include "test/fakes/manual_clock.h"
#include "test/server/wire_request.h"

namespace headroom {
namespace {

using Ladder = std::vector<std::int64_t>;

class Report {
 public:
  std::shared_ptr<const ServedModel> Serve(ModelSpec spec) {
    auto model = ServedOnPaper(std::move(spec));
    catalog_.Put({model, nullptr});
    return model;
  }
  ModelLadder Only() {
    std::vector<ModelLadder> ladders = report.Ladders();
    REQUIRE(ladders.size() == 1);
    return ladders.front();
  }
  void Look() {
    ResourceReading reading;
    reading.time = clock.Now();
    report.Look(reading);
  }

 private:
  ModelCatalog catalog_;

 public:
  ManualClock clock;
  LadderReport report{catalog_, clock};
};

ModelSpec SpecOf(Ladder buckets) {
  ModelSpec spec = ToySpec();
  spec.sequence.buckets = std::move(buckets);
  return spec;
}

void Come(const ServedModel& model, std::int64_t length, int rows) {
  for (int i = 0; i < rows; ++i) model.lengths->Add(length);
}

TEST_CASE("nothing is advised until there are enough rows", "[ladder_report]") {
  Report with;
  const auto model = with.Serve(SpecOf({32, 64}));
  CHECK_FALSE(with.Only().advice);
  Come(*model, 9, 999);
  CHECK_FALSE(with.Only().advice);
  CHECK(with.Only().lengths == LengthCounts{{9, 999}});
  // Rows that run in no batch do not count for it.
  Come(*model, 100, 5);
  CHECK_FALSE(with.Only().advice);
  Come(*model, 60, 1);
  const ModelLadder ladder = with.Only();
  CHECK(ladder.model == "P");
  CHECK(ladder.version == 3);
  CHECK(ladder.pads_to_buckets);
  REQUIRE(ladder.advice);
  CHECK(ladder.advice->buckets == Ladder{32, 64});
  CHECK(ladder.advice->proposed == Ladder{16, 64});
  CHECK(ladder.advice->cost.useful_tokens == 9 * 999 + 60);
  CHECK(ladder.advice->cost.computed_tokens == 32 * 999 + 64);
  CHECK(ladder.advice->saves() == Approx(16.0 * 999 / (32 * 999 + 64)));
}

TEST_CASE("advice is kept for a while, lengths are of the moment", "[ladder_report]") {
  Report with;
  const auto model = with.Serve(SpecOf({32, 64}));
  Come(*model, 9, 1000);
  CHECK(with.Only().advice->proposed == Ladder{16, 64});
  Come(*model, 40, 100'000);
  with.clock.Advance(LadderReport::kKeepFor - Duration(1));
  CHECK(with.Only().advice->proposed == Ladder{16, 64});
  CHECK(with.Only().lengths == LengthCounts{{9, 1000}, {40, 100'000}});
  with.clock.Advance(Duration(1));
  CHECK(with.Only().advice->proposed == Ladder{40, 64});
}

TEST_CASE("where padding is not to the bucket it is said", "[ladder_report]") {
  Report with;
  ModelSpec spec = SpecOf({32, 64});
  spec.sequence.padding = Padding::kMultipleOf8;
  const auto model = with.Serve(spec);
  Come(*model, 9, 1000);
  CHECK_FALSE(with.Only().pads_to_buckets);
  CHECK(with.Only().advice->proposed == Ladder{16, 64});
}

TEST_CASE("a model of fixed shapes has no ladder", "[ladder_report]") {
  Report with;
  ModelSpec spec = ToySpec("fixed");
  for (InputSpec& input : spec.inputs) input.dims = {4};
  with.Serve(spec);
  CHECK(with.report.Ladders().empty());
}

TEST_CASE("a ladder that would save much is logged, one line in an hour", "[ladder_report]") {
  std::vector<LogEvent> lines;
  SetLogSink([&](const LogEvent& event) { lines.push_back(event); });
  {
    Report with;
    const auto model = with.Serve(SpecOf({32, 64}));
    with.Look();
    CHECK(lines.empty());
    Come(*model, 9, 1000);
    with.clock.Advance(LadderReport::kKeepFor);
    with.Look();
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].fields[0].second.text == "P");
    CHECK(lines[0].fields[1].second.text == "50.0 %");
    CHECK(lines[0].fields[3].second.text == "sequence { buckets: [ 16, 64 ] }");
    with.clock.Advance(std::chrono::minutes(59));
    with.Look();
    CHECK(lines.size() == 1);
    with.clock.Advance(std::chrono::minutes(1));
    with.Look();
    CHECK(lines.size() == 2);
  }
  {
    lines.clear();
    Report with;
    Come(*with.Serve(SpecOf({16, 64})), 9, 1000);  // the best there is
    with.Look();
    CHECK(lines.empty());
  }
  SetLogSink(nullptr);
}

TEST_CASE("the pages of a ladder", "[ladder_report]") {
  CHECK(LadderAsConfig({24, 64, 512}) == "sequence { buckets: [ 24, 64, 512 ] }");
  CHECK(LengthsAsCsv({{9, 1000}, {60, 1}}) == "length,count\n9,1000\n60,1\n");

  ModelLadder known{"P", 3, true, {{9, 1000}}, AdviseLadder({{9, 1000}}, {32, 64}, 2)};
  ModelLadder unknown{"Q", 1, false, {{9, 2}}, std::nullopt};
  const auto json = nlohmann::json::parse(LaddersAsJson({known, unknown}));
  REQUIRE(json["models"].size() == 2);
  CHECK(json["models"][0] == nlohmann::json::parse(R"({
    "name": "P", "version": "3", "rows": 1000, "pads_to_buckets": true, "saves_share": 0.5,
    "present": {"buckets": [32, 64], "computed_tokens": 32000, "useful_tokens": 9000, "useful_token_share": 0.28125},
    "proposed": {"buckets": [16, 64], "computed_tokens": 16000, "useful_tokens": 9000, "useful_token_share": 0.5625,
                 "config": "sequence { buckets: [ 16, 64 ] }"}})"));
  CHECK(json["models"][1] == nlohmann::json::parse(R"({"name": "Q", "version": "1", "rows": 2, "pads_to_buckets": false,
    "present": null, "proposed": null, "saves_share": null})"));
}

TEST_CASE("a model's lengths are counted on by its next version", "[ladder_report]") {
  LengthRecords records;
  records.Of("P")->Add(7);
  records.Of("Q")->Add(8);
  CHECK(records.Of("P")->Counts() == LengthCounts{{7, 1}});
  CHECK(records.Of("Q")->Counts() == LengthCounts{{8, 1}});
}

}  // namespace
}  // namespace headroom
