#include "batching/bucket_tuning.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <random>

namespace headroom {
namespace {

using Ladder = std::vector<std::int64_t>;

TEST_CASE("what a ladder costs", "[bucket_tuning]") {
  struct Case {
    LengthCounts lengths;
    Ladder buckets;
    double useful;
    double computed;
  };
  const std::vector<Case> cases = {
      {{{9, 10}}, {32, 64}, 90, 320},
      {{{32, 1}, {33, 1}}, {32, 64}, 65, 96},
      {{{1, 3}, {64, 2}}, {32, 64}, 131, 3 * 32 + 2 * 64},
      {{{10, 1}, {65, 100}}, {32, 64}, 10, 32},  // beyond the last: not of this ladder
      {{}, {32}, 0, 0},
      {{{7, 0.25}, {20, 0.75}}, {8, 32}, 16.75, 26},
  };
  for (const Case& c : cases) {
    const LadderCost cost = CostOf(c.lengths, c.buckets);
    CAPTURE(absl::StrJoin(c.buckets, " "));
    CHECK(cost.useful_tokens == c.useful);
    CHECK(cost.computed_tokens == c.computed);
  }
  CHECK(CostOf({{9, 10}}, {36}).useful_share() == 0.25);
  CHECK(CostOf({}, {36}).useful_share() == 0);
}

TEST_CASE("the best ladder of small traffics", "[bucket_tuning]") {
  struct Case {
    LengthCounts lengths;
    TuningLimits limits;
    Ladder best;
  };
  const std::vector<Case> cases = {
      // One bucket must hold everything.
      {{{9, 1000}, {20, 5}}, {64, 1, 8}, {64}},
      // The second is worth most where most rows are.
      {{{9, 1000}, {20, 5}}, {64, 2, 1}, {9, 64}},
      {{{9, 1000}, {20, 5}}, {64, 2, 8}, {16, 64}},
      {{{9, 1}, {20, 1000}}, {64, 2, 1}, {20, 64}},
      {{{9, 1000}, {20, 5}}, {64, 3, 1}, {9, 20, 64}},
      // 10 rows × 10 against 1 row × 40: the worse cut costs 10 × 30 more.
      {{{10, 10}, {50, 1}, {90, 1}}, {90, 2, 1}, {10, 90}},
      {{{10, 1}, {50, 10}, {90, 1}}, {90, 2, 1}, {50, 90}},
      // No more buckets than are of use.
      {{{16, 7}, {64, 1}}, {64, 10, 8}, {16, 64}},
      {{{64, 7}}, {64, 10, 8}, {64}},
      {{}, {512, 5, 8}, {512}},
      // Rounded up, but never beyond the reach.
      {{{3, 9}, {98, 9}}, {100, 2, 8}, {8, 100}},
      {{{17, 9}, {99, 9}, {100, 9}}, {100, 3, 8}, {24, 100}},
      // Longer rows are not of this ladder.
      {{{10, 1}, {500, 1000}}, {64, 2, 1}, {10, 64}},
      // Shares do as well as counts.
      {{{9, 0.9}, {20, 0.1}}, {64, 2, 1}, {9, 64}},
  };
  for (const Case& c : cases) {
    const auto length = [](std::string* out, const LengthCount& of) { absl::StrAppend(out, of.rows, "x", of.length); };
    CAPTURE(absl::StrJoin(c.lengths, " ", length), c.limits.reach, c.limits.most_buckets, c.limits.multiple);
    CHECK(BestLadder(c.lengths, c.limits) == c.best);
  }
}

// The least cost of any ladder at all whose buckets are multiples, but for the reach.
double LeastByTrying(const LengthCounts& lengths, const TuningLimits& limits, Ladder& ladder, std::int64_t from) {
  Ladder whole = ladder;
  whole.push_back(limits.reach);
  double least = CostOf(lengths, whole).computed_tokens;
  if (whole.size() == limits.most_buckets) return least;
  for (std::int64_t bucket = from; bucket < limits.reach; bucket += limits.multiple) {
    ladder.push_back(bucket);
    least = std::min(least, LeastByTrying(lengths, limits, ladder, bucket + limits.multiple));
    ladder.pop_back();
  }
  return least;
}

TEST_CASE("no ladder is better than the best one", "[bucket_tuning]") {
  const std::uint64_t seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  for (int round = 0; round < 3000; ++round) {
    TuningLimits limits;
    limits.reach = draw(1, 26);
    limits.most_buckets = static_cast<std::size_t>(draw(1, 4));
    limits.multiple = draw(0, 1) == 0 ? 1 : draw(2, 8);
    std::map<std::int64_t, double> drawn;
    for (std::int64_t i = draw(0, 12); i > 0; --i) drawn[draw(1, 30)] = static_cast<double>(draw(1, draw(0, 1) == 0 ? 3 : 10'000));
    LengthCounts lengths;
    for (const auto& [length, rows] : drawn) lengths.push_back({length, rows});

    const Ladder best = BestLadder(lengths, limits);
    CAPTURE(round, limits.reach, limits.most_buckets, limits.multiple, absl::StrJoin(best, " "));
    REQUIRE(best.size() <= limits.most_buckets);
    REQUIRE(best.back() == limits.reach);
    REQUIRE(std::is_sorted(best.begin(), best.end(), std::less_equal<>()));
    for (std::size_t i = 0; i + 1 < best.size(); ++i) REQUIRE(best[i] % limits.multiple == 0);
    Ladder none;
    REQUIRE(CostOf(lengths, best).computed_tokens == LeastByTrying(lengths, limits, none, limits.multiple));
  }
}

TEST_CASE("as many lengths as there may be are cut in a moment", "[bucket_tuning]") {
  LengthCounts lengths;
  double useful = 0;
  for (std::int64_t length = 1; length <= 1 << 17; ++length) {
    lengths.push_back({length, 1});
    useful += static_cast<double>(length);
  }
  const Ladder best = BestLadder(lengths, {1 << 17, 64, 8});
  REQUIRE(best.size() == 64);
  // Evenly spread lengths are best cut evenly: half a step is wasted.
  const LadderCost cost = CostOf(lengths, best);
  CHECK(cost.useful_tokens == useful);
  CHECK(cost.computed_tokens / useful == Approx(1 + 1.0 / 64).epsilon(0.0005));
}

TEST_CASE("rows that are cut count at the last bucket, those alone not at all", "[bucket_tuning]") {
  SequenceSpec sequence;
  sequence.buckets = {32, 64};
  const LengthCounts lengths = {{5, 3}, {64, 2}, {65, 4}, {100, 1}, {101, 8}, {200, 1}, {201, 100}};
  CHECK(BatchedLengths(lengths, sequence) == LengthCounts{{5, 3}, {64, 2}});
  sequence.tiers = {{100, TierAction::kTruncate}, {200, TierAction::kSolo}};
  CHECK(BatchedLengths(lengths, sequence) == LengthCounts{{5, 3}, {64, 7}});
  CHECK(BatchedLengths({{5, 3}, {70, 2}}, sequence) == LengthCounts{{5, 3}, {64, 2}});
  CHECK(BatchedLengths({{150, 3}}, sequence).empty());
}

TEST_CASE("advice never makes a ladder worse", "[bucket_tuning]") {
  const LengthCounts lengths = {{9, 900}, {60, 100}};
  const LadderAdvice better = AdviseLadder(lengths, {32, 64}, 2);
  CHECK(better.proposed == Ladder{16, 64});
  CHECK(better.cost.computed_tokens == 900 * 32 + 100 * 64);
  CHECK(better.proposed_cost.computed_tokens == 900 * 16 + 100 * 64);
  CHECK(better.saves() == Approx(14'400.0 / 35'200));

  const LadderAdvice best_already = AdviseLadder(lengths, {16, 64}, 2);
  CHECK(best_already.proposed == Ladder{16, 64});
  CHECK(best_already.saves() == 0);

  // 9 is no multiple of 8, and better than one.
  const LadderAdvice finer = AdviseLadder(lengths, {9, 64}, 2);
  CHECK(finer.proposed == Ladder{9, 64});
  CHECK(finer.saves() == 0);
  // Fewer buckets than there are cannot be better.
  CHECK(AdviseLadder(lengths, {16, 64}, 1).proposed == Ladder{16, 64});
  CHECK(AdviseLadder({}, {32, 64}, 2).saves() == 0);
}

}  // namespace
}  // namespace headroom
