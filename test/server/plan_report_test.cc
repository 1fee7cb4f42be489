#include "server/plan_report.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace headroom {
namespace {

InstancePlan PlanOn(const std::string& model, const std::string& device) {
  InstancePlan plan;
  plan.model = model;
  plan.version = 3;
  plan.device = device;
  plan.budget = MiB(8);
  plan.rows = {{32, 4, Bytes{4000}, Bytes{3900}, Bytes{3000}, std::chrono::milliseconds(2)}, {64, 0, {}, {}, {}, {}}};
  return plan;
}

TEST_CASE("the JSON of a plan is by model, then by device", "[plan]") {
  PlanReport report;
  report.plans = {PlanOn("a", "cpu"), PlanOn("b", "cpu"), PlanOn("a", "cuda:0")};
  const auto json = nlohmann::json::parse(AsJson(report));
  REQUIRE(json["models"].size() == 2);
  CHECK(json["models"][0]["name"] == "a");
  CHECK(json["models"][0]["version"] == "3");
  REQUIRE(json["models"][0]["devices"].size() == 2);
  const auto& device = json["models"][0]["devices"][1];
  CHECK(device["device"] == "cuda:0");
  CHECK(device["budget_bytes"] == MiB(8).count);
  CHECK(device["fits"] == false);  // nothing of the bucket 64
  CHECK(device["reason"].is_null());
  CHECK_FALSE(device.contains("card"));
  const auto& row = device["buckets"][0];
  CHECK(row["largest_batch"] == 4);
  CHECK(row["estimated_peak_bytes"] == 4000);
  CHECK(row["measured_peak_bytes"] == 3900);
  CHECK(row["allocated_peak_bytes"] == 3000);
  CHECK(row["latency_us"] == 2000);
  CHECK(row["rows_per_second"] == 2000);
  CHECK(device["buckets"][1]["largest_batch"] == 0);
  CHECK(device["buckets"][1]["allocated_peak_bytes"].is_null());
}

TEST_CASE("a device that does not compute has no speed", "[plan]") {
  PlanReport report;
  report.card_allowance = MiB(500);
  InstancePlan plan = PlanOn("a", "cuda:0");
  plan.computes = false;
  plan.card = PlanCard{"t4", GiB(14), "7.5"};
  report.plans = {plan};
  const auto json = nlohmann::json::parse(AsJson(report));
  const auto& device = json["models"][0]["devices"][0];
  CHECK(device["buckets"][0]["latency_us"].is_null());
  CHECK(device["buckets"][0]["rows_per_second"].is_null());
  CHECK(device["card"] ==
        nlohmann::json(
            {{"name", "t4"}, {"memory_bytes", GiB(14).count}, {"capability", "7.5"}, {"allowance_bytes", MiB(500).count}}));
  CHECK(json["cannot_know"].is_string());
  const std::string table = AsTable(report);
  CHECK(table.find("cannot know") != std::string::npos);
  CHECK(table.find("500.00 MiB") != std::string::npos);
  CHECK(table.find("latency") == std::string::npos);
  CHECK(table.find("nothing fits") != std::string::npos);
}

TEST_CASE("what was measured at load is there for a simulator", "[plan]") {
  PlanReport report;
  report.plans = {PlanOn("a", "cpu")};
  LengthCurve& curve = report.plans[0].calibration.emplace_back();
  curve.length = 32;
  curve.points = {{.rows = 1, .peak = KiB(4), .latency = std::chrono::nanoseconds(1500)}};
  curve.failed_rows = 8;
  curve.failed_at_least = KiB(64);
  const auto calibration = [&] { return nlohmann::json::parse(AsJson(report))["models"][0]["devices"][0]["calibration"]; };
  CHECK(calibration() ==
        nlohmann::json::parse(R"([{"length": 32, "smooth_below": false, "failed_rows": 8, "failed_at_least_bytes": 65536,
    "points": [{"rows": 1, "peak_bytes": 4096, "latency_us": 1.5}]}])"));
  report.plans[0].computes = false;
  CHECK(calibration()[0]["points"][0]["latency_us"].is_null());
}

TEST_CASE("a traffic's ladder stands beside the best one, ready to be pasted", "[plan]") {
  PlanReport report;
  report.plans = {PlanOn("a", "cpu")};
  TrafficPlan& traffic = report.plans[0].traffic.emplace();
  CHECK(nlohmann::json::parse(AsJson(report))["models"][0]["devices"][0]["traffic"]["ladder"].is_null());
  traffic.ladder = AdviseLadder({{9, 900}, {60, 100}}, {32, 64}, 2);
  const auto ladder = nlohmann::json::parse(AsJson(report))["models"][0]["devices"][0]["traffic"]["ladder"];
  CHECK(ladder["present"] == nlohmann::json{{"buckets", {32, 64}},
                                            {"useful_tokens", 14'100.0},
                                            {"computed_tokens", 35'200.0},
                                            {"useful_token_share", 14'100.0 / 35'200}});
  CHECK(ladder["proposed"]["buckets"] == nlohmann::json{16, 64});
  CHECK(ladder["proposed"]["computed_tokens"] == 20'800);
  CHECK(ladder["proposed"]["config"] == "sequence { buckets: [ 16, 64 ] }");
  CHECK(ladder["saves_share"] == Approx(14'400.0 / 35'200));
  const std::string table = AsTable(report);
  CHECK(table.find("padded to the bucket: 35200.00 tokens computed, 40.06 % of them useful\n") != std::string::npos);
  CHECK(table.find("20800.00 tokens, 67.79 % useful, 40.91 % fewer; for config.pbtxt:\n    sequence { buckets: [ 16, 64 ] }\n") !=
        std::string::npos);
  traffic.ladder = AdviseLadder({{9, 900}, {60, 100}}, {16, 64}, 2);
  CHECK(AsTable(report).find("no other ladder of so many buckets computes fewer\n") != std::string::npos);
}

TEST_CASE("a model that does not fit a card at all says why", "[plan]") {
  PlanReport report;
  InstancePlan plan = PlanOn("a", "cuda:0");
  plan.card = PlanCard{"64MiB", MiB(64), "8.0"};
  plan.rows.clear();
  plan.unfit = "the weights need more";
  report.plans = {plan};
  const auto json = nlohmann::json::parse(AsJson(report));
  CHECK(json["models"][0]["devices"][0]["fits"] == false);
  CHECK(json["models"][0]["devices"][0]["reason"] == "the weights need more");
  CHECK(AsTable(report).find("does not fit: the weights need more") != std::string::npos);
}

}  // namespace
}  // namespace headroom
