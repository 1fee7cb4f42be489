#include "batching/bucket_ladder.h"

#include <catch2/catch.hpp>

#include "test/fakes/toy_request.h"

namespace headroom {
namespace {

ModelSpec Spec(Padding padding, std::vector<Tier> tiers = {}) {
  ModelSpec spec = ToySpec();
  spec.sequence.buckets = {32, 64, 100};
  spec.sequence.padding = padding;
  spec.sequence.tiers = std::move(tiers);
  return spec;
}

ModelSpec WithoutMask(ModelSpec spec) {
  spec.inputs.pop_back();
  return spec;
}

TEST_CASE("a row falls into the first bucket that holds it", "[ladder]") {
  const auto [length, bucket] = GENERATE(table<std::int64_t, std::int64_t>({
      {1, 32},
      {31, 32},
      {32, 32},
      {33, 64},
      {64, 64},
      {65, 100},
      {100, 100},
  }));
  CAPTURE(length);
  const Placement placement = BucketLadder(Spec(Padding::kBucket), DeviceKind::kCpu).Place(length).value();
  CHECK(placement.bucket == bucket);
  CHECK(placement.kept_length == length);
  CHECK_FALSE(placement.alone);
}

TEST_CASE("beyond the last bucket a row is refused with both lengths, unless a tier takes it", "[ladder]") {
  struct Case {
    const char* what;
    std::vector<Tier> tiers;
    std::int64_t length;
    std::int64_t bucket;  // 0: refused
    std::int64_t kept_length;
    bool alone;
    std::int64_t limit;
  };
  const auto c = GENERATE(values<Case>({
      {"no tier", {}, 101, 0, 0, false, 100},
      {"cut to the last bucket", {{200, TierAction::kTruncate}}, 101, 100, 100, false, 200},
      {"the tier's own limit is in it", {{200, TierAction::kTruncate}}, 200, 100, 100, false, 200},
      {"beyond the tier", {{200, TierAction::kTruncate}}, 201, 0, 0, false, 200},
      {"alone, at its own length", {{200, TierAction::kSolo}}, 150, 200, 150, true, 200},
      {"first tier", {{200, TierAction::kSolo}, {300, TierAction::kTruncate}}, 200, 200, 200, true, 300},
      {"second tier", {{200, TierAction::kSolo}, {300, TierAction::kTruncate}}, 201, 100, 100, false, 300},
      {"the other way round", {{200, TierAction::kTruncate}, {300, TierAction::kSolo}}, 201, 300, 201, true, 300},
      {"beyond both", {{200, TierAction::kTruncate}, {300, TierAction::kSolo}}, 301, 0, 0, false, 300},
  }));
  CAPTURE(c.what);
  const BucketLadder ladder(Spec(Padding::kBucket, c.tiers), DeviceKind::kCpu);
  CHECK(ladder.longest() == c.limit);
  const auto placement = ladder.Place(c.length);
  if (c.bucket == 0) {
    REQUIRE(placement.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(placement.status().message()),
               Catch::Contains(std::to_string(c.length)) && Catch::Contains(std::to_string(c.limit)));
    return;
  }
  REQUIRE(placement.ok());
  CHECK(placement->bucket == c.bucket);
  CHECK(placement->kept_length == c.kept_length);
  CHECK(placement->alone == c.alone);
}

TEST_CASE("a batch is padded as the model says", "[ladder]") {
  const auto [padding, kind, bucket, longest, padded] =
      GENERATE(table<Padding, DeviceKind, std::int64_t, std::int64_t, std::int64_t>({
          {Padding::kBucket, DeviceKind::kCpu, 64, 33, 64},
          {Padding::kBucket, DeviceKind::kCpu, 64, 64, 64},
          {Padding::kMultipleOf8, DeviceKind::kCpu, 64, 33, 40},
          {Padding::kMultipleOf8, DeviceKind::kCpu, 64, 40, 40},
          {Padding::kMultipleOf8, DeviceKind::kCpu, 64, 41, 48},
          {Padding::kMultipleOf8, DeviceKind::kCpu, 32, 1, 8},
          {Padding::kMultipleOf8, DeviceKind::kCpu, 100, 97, 100},  // never beyond the bucket
          {Padding::kExact, DeviceKind::kCpu, 64, 33, 33},
          {Padding::kAuto, DeviceKind::kCpu, 64, 33, 40},
          {Padding::kAuto, DeviceKind::kCuda, 64, 33, 64},
          {Padding::kBucket, DeviceKind::kCuda, 200, 150, 150},  // a row that runs alone
          {Padding::kMultipleOf8, DeviceKind::kCuda, 200, 150, 150},
      }));
  CAPTURE(padding, bucket, longest);
  CHECK(BucketLadder(Spec(padding, {{200, TierAction::kSolo}}), kind).PaddedLength(bucket, longest) == padded);
}

TEST_CASE("a model without a mask is never padded, whatever it says about padding", "[ladder]") {
  const BucketLadder ladder(WithoutMask(Spec(Padding::kBucket)), DeviceKind::kCuda);
  CHECK_FALSE(ladder.mixes_lengths());
  CHECK(ladder.PaddedLength(64, 33) == 33);
  CHECK(ladder.ShapesToCalibrate().step == 1);
}

TEST_CASE("a model without a mask that is safe to pad is padded", "[ladder]") {
  ModelSpec spec = WithoutMask(Spec(Padding::kBucket));
  spec.sequence.padding_safe = true;
  const BucketLadder ladder(spec, DeviceKind::kCuda);
  CHECK(ladder.mixes_lengths());
  CHECK(ladder.PaddedLength(64, 33) == 64);
}

TEST_CASE("fixed shapes have no length and one shape to calibrate", "[ladder]") {
  ModelSpec spec;
  spec.max_batch_rows = 16;
  spec.inputs = {{.name = "image", .dims = {3, 8, 8}, .value_range = {}}};
  const BucketLadder ladder(spec, DeviceKind::kCpu);
  const Placement placement = ladder.Place(0).value();
  CHECK(placement.bucket == 0);
  CHECK(placement.kept_length == 0);
  CHECK_FALSE(placement.alone);
  CHECK(ladder.mixes_lengths());
  CHECK(ladder.PaddedLength(0, 0) == 0);
  CHECK(ladder.longest() == 0);
  const CalibrationPlan plan = ladder.ShapesToCalibrate();
  REQUIRE(plan.lengths.size() == 1);
  CHECK(plan.lengths[0].length == 0);
  CHECK(plan.lengths[0].max_rows == 16);
  CHECK(plan.step == 0);
}

TEST_CASE("the buckets are calibrated at the largest batch, and lengths that run alone at one row", "[ladder]") {
  const std::vector<Tier> tiers = {{200, TierAction::kTruncate}, {300, TierAction::kSolo}};
  const auto [padding, step] = GENERATE(table<Padding, std::int64_t>({
      {Padding::kBucket, 0},
      {Padding::kMultipleOf8, 8},
      {Padding::kExact, 1},
      {Padding::kAuto, 8},
  }));
  const CalibrationPlan plan = BucketLadder(Spec(padding, tiers), DeviceKind::kCpu).ShapesToCalibrate();
  CHECK(plan.step == step);
  std::vector<std::pair<std::int64_t, std::int64_t>> shapes;
  for (const auto& length : plan.lengths) shapes.emplace_back(length.length, length.max_rows);
  CHECK(shapes == std::vector<std::pair<std::int64_t, std::int64_t>>{{32, 8}, {64, 8}, {100, 8}, {300, 1}});
  // Rows that run alone are not padded: every length up to the tier's limit occurs.
  std::vector<std::int64_t> steps;
  for (const auto& length : plan.lengths) steps.push_back(length.step);
  CHECK(steps == std::vector<std::int64_t>{0, 0, 0, 1});
}

}  // namespace
}  // namespace headroom
