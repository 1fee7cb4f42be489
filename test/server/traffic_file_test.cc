#include "server/traffic_file.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "test/server/scratch_folder.h"

namespace headroom {
namespace {

using Weights = std::map<std::int64_t, double>;

TrafficLengths Parse(const std::string& text, const ColumnWeights& mix = {}) {
  auto traffic = ParseTraffic("t.csv", text, mix);
  if (!traffic.ok()) FAIL(traffic.status());
  return *std::move(traffic);
}

std::string Faults(const std::string& text, const ColumnWeights& mix = {}, const TrafficLimits& limits = {}) {
  const auto traffic = ParseTraffic("t.csv", text, mix, limits);
  CHECK(traffic.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(traffic.status().message());
}

TEST_CASE("a trace counts each length", "[traffic]") {
  for (const std::string text : {"length\n7\n9\n7\n", "arrival_seconds,length\n0,7\n0.5,9\n0.5,7",
                                 "length,user\r\n7,a\r\n9,b\r\n7,\r\n", "\xEF\xBB\xBFlength\n\n 7 \n9\n\n7\n\n"}) {
    CAPTURE(text);
    const TrafficLengths traffic = Parse(text);
    CHECK(traffic.form == "trace");
    CHECK(traffic.weights == Weights{{7, 2}, {9, 1}});
    CHECK(traffic.total == 3);
  }
}

TEST_CASE("a histogram weighs each length", "[traffic]") {
  const TrafficLengths traffic = Parse("count,length\n2.5,7\n0,8\n1,9\n1,7\n");
  CHECK(traffic.form == "histogram");
  CHECK(traffic.weights == Weights{{7, 3.5}, {9, 1}});
}

TEST_CASE("quantiles spread evenly between neighbours", "[traffic]") {
  const TrafficLengths traffic = Parse("quantile,a\n0,4\n0.5,4\n1,8\n");
  CHECK(traffic.form == "quantiles");
  CHECK(traffic.weights == Weights{{4, 0.5 + 0.0625}, {5, 0.125}, {6, 0.125}, {7, 0.125}, {8, 0.0625}});
  CHECK(traffic.total == Approx(1));
}

TEST_CASE("columns of quantiles are mixed equally, or as told", "[traffic]") {
  const std::string text = "quantile,a,b,c\n0,1,2,3\n1,1,2,3\n";
  CHECK(Parse(text).weights.at(3) == Approx(1.0 / 3));
  const TrafficLengths mixed = Parse(text, {{"a", 30}, {"c", 10}});
  CHECK(mixed.weights == Weights{{1, 0.75}, {3, 0.25}});
  CHECK(mixed.columns == std::vector<std::string>{"a", "c"});
}

TEST_CASE("every fault is named with its line", "[traffic]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "t.csv:1: the file is empty"},
      {"length\n", "t.csv:2: there is no row"},
      {"length,count\n5,0\n", "t.csv:3: there is no row"},
      {"tokens\n5\n", "t.csv:1: the columns must hold \"length\", or begin with \"quantile\", not \"tokens\""},
      {"length,length\n5,5\n", "t.csv:1: the column \"length\" comes twice"},
      {"quantile\n0\n", "t.csv:1: the columns must hold \"length\", or begin with \"quantile\", not \"quantile\""},
      {"length\n5\n0\n-1\nx\n1.5\n1048577\n99999999999999999999\n",
       "t.csv:3: length must be a whole number from 1 to 1048576, not \"0\"\n"
       "t.csv:4: length must be a whole number from 1 to 1048576, not \"-1\"\n"
       "t.csv:5: length must be a whole number from 1 to 1048576, not \"x\"\n"
       "t.csv:6: length must be a whole number from 1 to 1048576, not \"1.5\"\n"
       "t.csv:7: length must be a whole number from 1 to 1048576, not \"1048577\"\n"
       "t.csv:8: length must be a whole number from 1 to 1048576, not \"99999999999999999999\""},
      {"length,count\n5\n6,-1\n7,nan\n",
       "t.csv:2: there must be 2 columns as in the first line, not 1\n"
       "t.csv:3: count must be a number from 0 to 1e+15, not \"-1\"\n"
       "t.csv:4: count must be a number from 0 to 1e+15, not \"nan\""},
      {"length,arrival_seconds\n5,1\n6,0.5\n7,\n",
       "t.csv:3: arrival_seconds must not fall: 0.5 after 1\n"
       "t.csv:4: arrival_seconds must be a number from 0, not \"\""},
      {"quantile,a\n0.1,4\n0.1,5\n1,3\n",
       "t.csv:2: the first quantile must be 0, not 0.1\n"
       "t.csv:3: quantile must rise: 0.1 after 0.1\n"
       "t.csv:4: a must not fall: 3 after 5"},
      {"quantile,a\n0,4\n0.5,5\n", "t.csv:4: the last quantile must be 1, not 0.5"},
      {"quantile,a\n0,4\n2,5\n", "t.csv:3: quantile must be a number from 0 to 1, not \"2\""},
  };
  for (const auto& [text, faults] : cases) {
    CAPTURE(text);
    CHECK(Faults(text) == faults);
  }
  CHECK(Faults("quantile,a\n0,1\n1,1\n", {{"b", 1}}) == "t.csv:1: --traffic-mix names \"b\", and there is no such column");
  CHECK(Faults("length\n1\n", {{"b", 1}}) == "t.csv:1: --traffic-mix is for a table of quantiles, this one has lengths");
}

TEST_CASE("what is read of a file is bounded", "[traffic]") {
  TrafficLimits limits;
  limits.rows = 2;
  CHECK(ParseTraffic("t.csv", "length\n1\n2\n", {}, limits).ok());
  CHECK(Faults("length\n1\n2\n3\n", {}, limits) == "t.csv:4: more than 2 rows");
  limits.quantile_columns = 1;
  CHECK(Faults("quantile,a,b\n0,1,1\n", {}, limits) == "t.csv:1: more than 1 quantile functions");
  limits.rows = 10;
  limits.faults = 2;
  CHECK(Faults("length\na\nb\nc\nd\n", {}, limits) ==
        "t.csv:2: length must be a whole number from 1 to 1048576, not \"a\"\n"
        "t.csv:3: length must be a whole number from 1 to 1048576, not \"b\"\n"
        "t.csv: and 2 faults more");
  CHECK(Faults("length\n" + std::string(100, 'x')) ==
        "t.csv:2: length must be a whole number from 1 to 1048576, not \"" + std::string(40, 'x') + "…\"");

  const ScratchFolder folder;
  const std::string path = (folder.path() / "t.csv").string();
  CHECK(ReadTraffic(path, {}).status().code() == absl::StatusCode::kNotFound);
  CHECK(ReadTraffic(folder.path().string(), {}).status().code() != absl::StatusCode::kOk);
  std::ofstream(path) << "length\n1\n";
  CHECK(ReadTraffic(path, {})->total == 1);
  limits.file = Bytes{8};
  CHECK(ReadTraffic(path, {}, limits).status().message() == "--traffic: " + path + " is larger than 8 B");
}

TEST_CASE("a percentile is the least length that so many rows do not exceed", "[traffic]") {
  const TrafficLengths traffic = Parse("length,count\n5,50\n10,49\n90,1\n");
  const std::vector<std::pair<double, std::int64_t>> cases = {{0, 5}, {0.5, 5}, {0.51, 10}, {0.99, 10}, {0.999, 90}, {1, 90}};
  for (const auto& [quantile, length] : cases) {
    CAPTURE(quantile);
    CHECK(LengthAt(traffic, quantile) == length);
  }
}

TEST_CASE("weights of columns are read", "[traffic]") {
  CHECK(ParseColumnWeights("a=30,b=0.5").value() == ColumnWeights{{"a", 30}, {"b", 0.5}});
  for (const std::string text : {"", "a", "a=", "=1", "a=0", "a=-1", "a=x", "a=1,,b=1", "a=1,a=2", "a=inf"}) {
    CAPTURE(text);
    CHECK_FALSE(ParseColumnWeights(text).ok());
  }
}

}  // namespace
}  // namespace headroom
