#include "bench/simulator/workload.h"

#include <catch2/catch.hpp>
#include <map>

namespace headroom {
namespace {

std::map<std::int64_t, double> SharesOf(const LengthDistribution& lengths, int rows = 40'000) {
  std::mt19937_64 random(3);
  std::map<std::int64_t, double> shares;
  for (int i = 0; i < rows; ++i) shares[lengths.Draw(random)] += 1.0 / rows;
  return shares;
}

TEST_CASE("lengths of a histogram come as often as they are counted", "[workload]") {
  const auto lengths = LengthDistribution::FromCsv("length,count\n5,10\n20,30\n100,60\n", {}, 64);
  REQUIRE(lengths.ok());
  const auto shares = SharesOf(*lengths);
  CHECK(shares.at(5) == Approx(0.1).epsilon(0.05));
  CHECK(shares.at(20) == Approx(0.3).epsilon(0.05));
  CHECK(shares.at(64) == Approx(0.6).epsilon(0.05));  // cut
}

TEST_CASE("lengths of a trace come as often as their lines", "[workload]") {
  const auto shares = SharesOf(LengthDistribution::FromCsv("arrival_seconds,length\n0,7\n1,7\n2,7\n3,9\n", {}, 0).value());
  CHECK(shares.at(7) == Approx(0.75).epsilon(0.05));
  CHECK(shares.at(9) == Approx(0.25).epsilon(0.05));
}

TEST_CASE("quantiles are interpolated and mixed", "[workload]") {
  const std::string table = "quantile,a,b\n0,10,100\n0.5,20,100\n1,30,100\n";
  const auto of = [&](const std::map<std::string, double>& mix) {
    return SharesOf(LengthDistribution::FromCsv(table, mix, 0).value());
  };
  const auto a = of({{"a", 1}});
  CHECK(a.begin()->first == 10);
  CHECK(a.rbegin()->first == 30);
  CHECK(a.at(15) == Approx(0.05).epsilon(0.15));
  CHECK(of({}).at(100) == Approx(0.5).epsilon(0.05));
  CHECK(of({{"a", 1}, {"b", 3}}).at(100) == Approx(0.75).epsilon(0.05));
  CHECK_FALSE(LengthDistribution::FromCsv(table, {{"c", 1}}, 0).ok());
}

TEST_CASE("the incident mix has its shares", "[workload]") {
  double short_rows = 0;
  double middle = 0;
  double long_rows = 0;
  for (const auto& [length, share] : SharesOf(LengthDistribution::Incident(0))) {
    CHECK(length >= 8);
    CHECK(length <= 3000);
    (length < 128 ? short_rows : length < 512 ? middle : long_rows) += share;
  }
  CHECK(short_rows == Approx(0.80).epsilon(0.02));
  CHECK(middle == Approx(0.15).epsilon(0.05));
  CHECK(long_rows == Approx(0.05).epsilon(0.1));
  CHECK(SharesOf(LengthDistribution::Incident(512)).rbegin()->first == 512);
}

TEST_CASE("rows come at their rate, the same at every rate", "[workload]") {
  const LengthDistribution lengths = LengthDistribution::Incident(512);
  const auto rows = PoissonRows(lengths, 20'000, 5);
  REQUIRE(rows.size() == 20'000);
  CHECK(Seconds(rows.back().arrives) == Approx(20'000).epsilon(0.03));
  const auto faster = AtRate(rows, 100);
  CHECK(Seconds(faster.back().arrives) == Approx(Seconds(rows.back().arrives) / 100));
  CHECK(faster.back().length == rows.back().length);
  for (std::size_t i = 1; i < rows.size(); ++i) REQUIRE(rows[i - 1].arrives <= rows[i].arrives);
}

TEST_CASE("a trace is read in the order of its arrivals, at any speed", "[workload]") {
  const auto rows = TraceRows("length,arrival_seconds\n7,4\n9,2\n1000,8\n", 2, 512);
  REQUIRE(rows.ok());
  REQUIRE(rows->size() == 3);
  CHECK(rows->at(0).length == 9);
  CHECK(rows->at(0).arrives == std::chrono::seconds(1));
  CHECK(rows->at(2).length == 512);
  CHECK(rows->at(2).arrives == std::chrono::seconds(4));
  for (const char* const text :
       {"", "length\n3\n", "arrival_seconds,length\n", "arrival_seconds,length\n1\n", "arrival_seconds,length\n1,x\n"}) {
    CAPTURE(text);
    CHECK_FALSE(TraceRows(text, 1, 0).ok());
  }
}

}  // namespace
}  // namespace headroom
