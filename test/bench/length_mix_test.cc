#include "bench/traffic/length_mix.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace headroom {
namespace {

constexpr const char* kTable =
    "quantile,msmarco_q,squad_q,squad_p,squad_pair,sst2\n"
    "0.0,10,20,100,200,3\n"
    "0.5,10,20,100,400,3\n"
    "1.0,10,20,100,800,3\n";

constexpr std::size_t kDraws = 40'000;

double ShareOf(const std::vector<std::int64_t>& lengths, std::int64_t low, std::int64_t high) {
  const auto count =
      std::count_if(lengths.begin(), lengths.end(), [=](std::int64_t length) { return low <= length && length <= high; });
  return static_cast<double>(count) / static_cast<double>(lengths.size());
}

std::vector<std::int64_t> Drawn(const std::string& mix, std::int64_t cut, std::uint64_t seed) {
  const auto draw = MakeLengthDraw(mix, kTable, cut);
  REQUIRE(draw.ok());
  return DrawLengths(*draw, kDraws, seed);
}

TEST_CASE("between two quantiles a length lies on their line", "[mix]") {
  const auto table = QuantileTable::Parse(kTable);
  REQUIRE(table.ok());
  CHECK(table->At("squad_pair", 0) == 200);
  CHECK(table->At("squad_pair", 0.25) == 300);
  CHECK(table->At("squad_pair", 0.5) == 400);
  CHECK(table->At("squad_pair", 0.75) == 600);
  CHECK(table->At("squad_pair", 1) == 800);
}

TEST_CASE("a length is at least 1", "[mix]") {
  const auto table = QuantileTable::Parse("quantile,a\n0,0\n1,0\n");
  REQUIRE(table.ok());
  CHECK(table->At("a", 0.5) == 1);
}

TEST_CASE("the search mix has its shares", "[mix]") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  const std::vector<std::int64_t> lengths = Drawn("search", 0, seed);
  CHECK(ShareOf(lengths, 10, 10) == Approx(0.3).margin(0.015));
  CHECK(ShareOf(lengths, 3, 3) == Approx(0.2).margin(0.015));
  CHECK(ShareOf(lengths, 20, 20) == Approx(0.1).margin(0.015));
  CHECK(ShareOf(lengths, 100, 100) == Approx(0.2).margin(0.015));
  CHECK(ShareOf(lengths, 200, 800) == Approx(0.2).margin(0.015));
}

TEST_CASE("the incident mix has its tail", "[mix]") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  const std::vector<std::int64_t> lengths = Drawn("incident", 0, seed);
  CHECK(ShareOf(lengths, 8, 127) == Approx(0.8).margin(0.015));
  CHECK(ShareOf(lengths, 128, 511) == Approx(0.15).margin(0.015));
  CHECK(ShareOf(lengths, 513, 3000) == Approx(0.05).margin(0.01));
  CHECK(*std::max_element(lengths.begin(), lengths.end()) > 2500);
}

TEST_CASE("what is longer than the cut is drawn as the cut", "[mix]") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  const std::vector<std::int64_t> whole = Drawn("incident", 0, seed);
  const std::vector<std::int64_t> cut = Drawn("incident", 512, seed);
  for (std::size_t i = 0; i < whole.size(); ++i) REQUIRE(cut[i] == std::min<std::int64_t>(512, whole[i]));
}

TEST_CASE("the same seed draws the same lengths", "[mix]") {
  CHECK(Drawn("search", 512, 5) == Drawn("search", 512, 5));
  CHECK(Drawn("search", 512, 5) != Drawn("search", 512, 6));
}

TEST_CASE("a range and a length are mixes", "[mix]") {
  const std::vector<std::int64_t> range = Drawn("3-5", 0, 1);
  CHECK(ShareOf(range, 3, 3) == Approx(1.0 / 3).margin(0.02));
  CHECK(ShareOf(range, 3, 5) == 1);
  CHECK(ShareOf(Drawn("77", 0, 1), 77, 77) == 1);
}

TEST_CASE("what is no mix is refused", "[mix]") {
  for (const char* const mix : {"", "searches", "0", "5-3", "1-2-3", "-4", "a-b"}) {
    CAPTURE(mix);
    CHECK_FALSE(MakeLengthDraw(mix, kTable, 0).ok());
  }
  CHECK_FALSE(MakeLengthDraw("search", "", 0).ok());
  CHECK_FALSE(MakeLengthDraw("search", "quantile,msmarco_q\n0,1\n1,2\n", 0).ok());
}

TEST_CASE("what is no table is refused with its line", "[mix]") {
  struct Case {
    const char* text;
    const char* words;
  };
  for (const auto& [text, words] : std::vector<Case>{
           {"", "0 to 1"},
           {"length,a\n0,1\n1,2\n", "begins with"},
           {"quantile,a\n0,1\n0.5,2\n", "0 to 1"},
           {"quantile,a\n0,1\n1,2,3\n", "line 3"},
           {"quantile,a\n0,1\n0.5,x\n1,2\n", "line 3"},
           {"quantile,a\n0,1\n0.5,1\n0.5,1\n1,2\n", "line 4"},
           {"quantile,a\n0,-1\n1,2\n", "line 2"},
       }) {
    CAPTURE(text);
    const auto table = QuantileTable::Parse(text);
    REQUIRE_FALSE(table.ok());
    CHECK_THAT(std::string(table.status().message()), Catch::Contains(words));
  }
}

}  // namespace
}  // namespace headroom
