#include "bench/traffic/arrivals.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

namespace headroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::uint64_t NewSeed() { return std::random_device()(); }

TEST_CASE("arrivals ascend, end in time, and are the same for the same seed", "[arrivals]") {
  for (const double factor : {1.0, 4.0, 0.25}) {
    const auto seed = NewSeed();
    CAPTURE(seed, factor);
    Random random(seed);
    Random again(seed);
    const std::vector<Duration> times = ArrivalTimes(random, {50, factor}, seconds(30));
    REQUIRE_FALSE(times.empty());
    CHECK(std::is_sorted(times.begin(), times.end()));
    CHECK(times.front() >= Duration::zero());
    CHECK(times.back() <= seconds(30));
    CHECK(ArrivalTimes(again, {50, factor}, seconds(30)) == times);
  }
}

TEST_CASE("the rate is what was asked for, with bursts too", "[arrivals]") {
  for (const double factor : {1.0, 4.0}) {
    const auto seed = NewSeed();
    CAPTURE(seed, factor);
    Random random(seed);
    // 100,000 on average; the standard deviation of a Poisson count is its root, 316.
    const auto count = static_cast<double>(ArrivalTimes(random, {100, factor}, seconds(1000)).size());
    CHECK(count == Approx(100'000).margin(6 * 316));
  }
}

TEST_CASE("a Poisson process varies as one", "[arrivals]") {
  const auto seed = NewSeed();
  CAPTURE(seed);
  Random random(seed);
  const std::vector<Duration> times = ArrivalTimes(random, {100, 1}, seconds(1000));
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 1; i < times.size(); ++i) {
    const double gap = Seconds(times[i] - times[i - 1]);
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / static_cast<double>(times.size() - 1);
  const double deviation = std::sqrt(squares / static_cast<double>(times.size() - 1) - mean * mean);
  CHECK(deviation / mean == Approx(1).margin(0.05));
}

TEST_CASE("a burst is a second in ten at its rate", "[arrivals]") {
  const auto seed = NewSeed();
  CAPTURE(seed);
  Random random(seed);
  const std::vector<Duration> times = ArrivalTimes(random, {130, 4}, seconds(1000));  // 100 when calm, 400 in bursts
  // The burst begins at the same time of each period, at a tenth of a second that has to be found.
  std::vector<double> by_tenth(100, 0);
  for (const Duration time : times) by_tenth[static_cast<std::size_t>(std::fmod(Seconds(time), 10) * 10)] += 1;
  const auto busy = std::count_if(by_tenth.begin(), by_tenth.end(), [](double count) { return count > 2500; });
  const auto calm = std::count_if(by_tenth.begin(), by_tenth.end(), [](double count) { return count < 1400; });
  CHECK((busy >= 9 && busy <= 10));
  CHECK(calm >= 89);
}

TEST_CASE("a trace is read at its speed", "[arrivals]") {
  const auto trace = ParseTrace("arrival_seconds,length\n0.000,4808\r\n0.5,3180\n\n3,12\n", 2);
  REQUIRE(trace.ok());
  REQUIRE(trace->size() == 3);
  CHECK((*trace)[0].length == 4808);
  CHECK((*trace)[1].at == milliseconds(250));
  CHECK((*trace)[2].at == milliseconds(1500));
  CHECK((*trace)[2].length == 12);
}

TEST_CASE("what is no trace is refused with its line", "[arrivals]") {
  struct Case {
    const char* text;
    const char* words;
  };
  for (const auto& [text, words] : std::vector<Case>{
           {"", "begins with"},
           {"time,tokens\n0,1\n", "begins with"},
           {"arrival_seconds,length\n0\n", "line 2"},
           {"arrival_seconds,length\n0,1\n1,0\n", "line 3"},
           {"arrival_seconds,length\n-1,5\n", "line 2"},
           {"arrival_seconds,length\nnan,5\n", "line 2"},
           {"arrival_seconds,length\n2,5\n1,5\n", "line 3"},
       }) {
    CAPTURE(text);
    const auto trace = ParseTrace(text, 1);
    REQUIRE_FALSE(trace.ok());
    CHECK_THAT(std::string(trace.status().message()), Catch::Contains(words));
  }
}

}  // namespace
}  // namespace headroom
