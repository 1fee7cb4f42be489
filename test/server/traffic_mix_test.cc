#include "server/traffic_mix.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

namespace headroom {
namespace {

struct Model {
  std::vector<std::int64_t> buckets = {32, 64};
  std::vector<Tier> tiers;
  Padding padding = Padding::kBucket;
  bool has_mask = true;
  std::map<std::int64_t, std::int64_t> largest = {{32, 4}, {64, 2}, {128, 1}};

  TrafficMix MixOf(const std::string& csv) const {
    ModelSpec spec;
    spec.max_batch_rows = 16;
    spec.sequence.buckets = buckets;
    spec.sequence.tiers = tiers;
    spec.sequence.padding = padding;
    for (const InputRole role : {InputRole::kTokens, InputRole::kMask}) {
      if (role == InputRole::kMask && !has_mask) continue;
      InputSpec& input = spec.inputs.emplace_back();
      input.dims = {kSequenceAxis};
      input.role = role;
    }
    const BucketLadder ladder(spec, DeviceKind::kCpu);
    const auto traffic = ParseTraffic("t.csv", csv, {});
    REQUIRE(traffic.ok());
    return headroom::MixOf(*traffic, tiers, buckets, ladder, [&](std::int64_t bucket) { return largest.at(bucket); });
  }
};

std::string Shapes(const TrafficClass& of) {
  std::string text;
  for (const WindowBatch& batch : of.batches) {
    text += (text.empty() ? "" : " ") + std::to_string(batch.shape.rows) + "x" + std::to_string(batch.shape.length) + ":" +
            std::to_string(batch.useful_tokens);
  }
  return text;
}

TEST_CASE("each row is of a bucket, of a tier, or refused", "[traffic]") {
  Model model;
  model.tiers = {{96, TierAction::kTruncate}, {128, TierAction::kSolo}};
  const TrafficMix mix = model.MixOf("length,count\n1,10\n32,10\n33,20\n64,5\n65,5\n96,10\n97,15\n128,5\n129,15\n4000,5\n");
  struct Expected {
    std::int64_t from, up_to;
    const char* treatment;
    std::int64_t bucket;
    double share;
    std::int64_t largest;
  };
  const std::vector<Expected> table = {{1, 32, "batched", 32, 0.20, 4},
                                       {33, 64, "batched", 64, 0.25, 2},
                                       {65, 96, "truncated", 64, 0.15, 2},
                                       {97, 128, "alone", 128, 0.20, 1},
                                       {129, 0, "refused", 0, 0.20, 0}};
  REQUIRE(mix.classes.size() == table.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    CAPTURE(i);
    const TrafficClass& of = mix.classes[i];
    CHECK(of.from == table[i].from);
    CHECK(of.up_to == table[i].up_to);
    CHECK(std::string(NameOf(of.treatment)) == table[i].treatment);
    CHECK(of.bucket == table[i].bucket);
    CHECK(of.share == Approx(table[i].share));
    CHECK(of.largest_batch == table[i].largest);
  }
  CHECK(mix.refused_share == Approx(0.2));
  CHECK(mix.unfit_share == 0);
}

TEST_CASE("a window is sorted, cut at the largest batch, and padded by the policy", "[traffic]") {
  // 6 of 256 waiting rows are of the bucket 64: lengths 33, 33, 33, 50, 50, 50 in pairs.
  const std::string csv = "length,count\n20,250\n33,3\n50,3\n";
  Model model;
  CHECK(Shapes(model.MixOf(csv).classes[1]) == "2x64:66 2x64:83 2x64:100");
  model.padding = Padding::kMultipleOf8;
  CHECK(Shapes(model.MixOf(csv).classes[1]) == "2x40:66 2x56:83 2x56:100");
  model.padding = Padding::kExact;
  CHECK(Shapes(model.MixOf(csv).classes[1]) == "2x33:66 2x50:83 2x50:100");
  // Without a mask only rows of one length share a batch.
  model.has_mask = false;
  CHECK(Shapes(model.MixOf(csv).classes[1]) == "2x33:66 1x33:33 2x50:100 1x50:50");
}

TEST_CASE("padding costs what it computes beyond the rows", "[traffic]") {
  Model model;
  CHECK(model.MixOf("length\n16\n").useful_share == Approx(0.5));
  CHECK(model.MixOf("length\n64\n32\n").useful_share == Approx(1));
  // Half the rows use 8 of 32, half 64 of 64.
  CHECK(model.MixOf("length\n8\n64\n").useful_share == Approx((0.5 * 8 + 0.5 * 64) / (0.5 * 32 + 0.5 * 64)));
  // A row that is cut computes, and uses, what is kept; one that runs alone is not padded; refused rows cost nothing.
  model.tiers = {{96, TierAction::kTruncate}, {128, TierAction::kSolo}};
  CHECK(model.MixOf("length\n90\n100\n5000\n").useful_share == Approx(1));
  CHECK(model.MixOf("length\n5000\n").useful_share == 0);
}

TEST_CASE("rows of a bucket that fits nothing do not fit, and cost nothing", "[traffic]") {
  Model model;
  model.largest[64] = 0;
  const TrafficMix mix = model.MixOf("length\n16\n16\n16\n60\n");
  CHECK(mix.unfit_share == Approx(0.25));
  CHECK(mix.refused_share == 0);
  CHECK(mix.classes[1].batches.empty());
  CHECK(mix.useful_share == Approx(0.5));
}

TEST_CASE("a class counts with its share, however few of its rows are in the window", "[traffic]") {
  const Model model;
  // One row in ten thousand is long: less than one of a window, and still there.
  const TrafficMix mix = model.MixOf("length,count\n16,9999\n64,1\n");
  CHECK(Shapes(mix.classes[1]) == "1x64:64");
  const double seconds = RowsPerSecond(mix, [](BatchShape shape) { return shape.length == 64 ? 1000.0 : 0.4; });
  CHECK(seconds == Approx(1 / (0.9999 * 0.1 + 0.0001 * 1000)));
}

TEST_CASE("rows a second are those of the rows that are served", "[traffic]") {
  Model model;
  CHECK(RowsPerSecond(model.MixOf("length\n16\n"), [](BatchShape) { return 0.2; }) == Approx(20));
  // Half the rows are refused and take no time: as many as before are served.
  CHECK(RowsPerSecond(model.MixOf("length\n16\n999\n"), [](BatchShape) { return 0.2; }) == Approx(20));
  CHECK(RowsPerSecond(model.MixOf("length\n999\n"), [](BatchShape) { return 0.2; }) == 0);
}

}  // namespace
}  // namespace headroom
