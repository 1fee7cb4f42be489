#include "bench/simulator/simulation.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace headroom {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Bytes kNoBound{std::numeric_limits<std::int64_t>::max()};

ModelSpec Spec(std::int64_t max_rows) {
  ModelSpec spec;
  spec.max_batch_rows = max_rows;
  spec.inputs = {
      {.name = "input_ids", .type = DataType::kInt64, .dims = {kSequenceAxis}, .role = InputRole::kTokens, .value_range = {}}};
  spec.sequence.padding_safe = true;
  spec.sequence.padding = Padding::kExact;
  spec.queue.max_rows = 1'000'000;
  return spec;
}

// A batch takes 1 ms and 10 µs for each token.
const ModelledDevice& Device() {
  static const auto* const device =
      new ModelledDevice(ModelledDevice::Of({milliseconds(1), microseconds(10), Bytes{1000}}, 512, 64));
  return *device;
}

SimulatedServer Server(Policy policy, std::int64_t max_rows = 64) {
  SimulatedServer server;
  server.policy = policy;
  server.scheduling = {Spec(max_rows), &Device(), kNoBound};
  return server;
}

std::vector<SimulatedRow> Equal(std::size_t rows, std::int64_t length, std::uint64_t seed) {
  return PoissonRows(LengthDistribution({{1, {static_cast<double>(length)}}}, 0), rows, seed);
}

// To the microsecond: the model cuts off parts of a nanosecond.
std::vector<double> Milliseconds(const SimulatedRun& run) {
  std::vector<double> latencies;
  for (const double seconds : run.latencies) latencies.push_back(std::round(1e6 * seconds) / 1000);
  return latencies;
}

TEST_CASE("a formula is followed between and beyond its points", "[simulator]") {
  const auto microseconds_of = [](BatchShape shape) { return 1e6 * Seconds(Device().Takes(shape)); };
  CHECK(microseconds_of({1, 1}) == Approx(1010));
  CHECK(microseconds_of({1, 100}) == Approx(2000));
  CHECK(microseconds_of({10, 100}) == Approx(11'000));
  CHECK(microseconds_of({64, 512}) == Approx(1000 + 10 * 64 * 512));
  CHECK(Device().memory().Peak({10, 100}).value() == Bytes{1'000'000});
}

TEST_CASE("one row at a time, by hand", "[simulator]") {
  const std::vector<SimulatedRow> rows = {{milliseconds(0), 100}, {milliseconds(1), 200}, {milliseconds(10), 100}};
  for (const Policy policy : {Policy::kSingle, Policy::kOurs, Policy::kFifo32}) {
    CAPTURE(NameOf(policy));
    const SimulatedRun run = Simulate(Server(policy, 1), rows, 0);
    // 2 ms; then 3 ms, begun at 2; then 2 ms. None ever finds another waiting.
    CHECK(Milliseconds(run) == std::vector<double>{2, 2, 4});
    CHECK(run.answered == 3);
    CHECK(run.batches == 3);
    CHECK(run.seconds == Approx(0.012));
    CHECK(run.utilisation == Approx(7.0 / 12));
    CHECK(run.useful_share == 1);
    CHECK(run.mean_wait_seconds == Approx(0.001 / 3));
  }
}

TEST_CASE("first come is padded to the longest, ours is not", "[simulator]") {
  // While the first runs, 40 rows come: every eighth is long.
  std::vector<SimulatedRow> rows = {{milliseconds(0), 512}};
  for (int i = 0; i < 40; ++i) rows.push_back({milliseconds(1), i % 8 == 0 ? 512 : 32});
  const SimulatedRun fifo = Simulate(Server(Policy::kFifo32), rows, 0);
  CHECK(fifo.batches == 3);
  const double useful = 512 + 5 * 512 + 35 * 32;
  CHECK(fifo.useful_share == Approx(useful / (512 + 40 * 512)));
  const SimulatedRun ours = Simulate(Server(Policy::kOurs), rows, 0);
  CHECK(ours.answered == 41);
  CHECK(ours.useful_share > 0.99);
  CHECK(ours.seconds < 0.3 * fifo.seconds);
  const SimulatedRun single = Simulate(Server(Policy::kSingle), rows, 0);
  CHECK(single.batches == 41);
  CHECK(single.useful_share == 1);
}

TEST_CASE("two workers run side by side, unless memory is for one", "[simulator]") {
  const std::vector<SimulatedRow> rows = {{Duration{0}, 100}, {Duration{0}, 100}, {Duration{0}, 100}, {Duration{0}, 100}};
  for (const Policy policy : {Policy::kSingle, Policy::kOurs}) {
    CAPTURE(NameOf(policy));
    SimulatedServer server = Server(policy, 1);
    server.workers = 2;
    CHECK(Milliseconds(Simulate(server, rows, 0)) == std::vector<double>{2, 2, 4, 4});
    server.scheduling.budget = Bytes{150'000};  // a row takes 100,000
    CHECK(Milliseconds(Simulate(server, rows, 0)) == std::vector<double>{2, 4, 6, 8});
    server.scheduling.budget = Bytes{99'999};
    CHECK(Simulate(server, rows, 0).refused == 4);
    server.scheduling.budget = kNoBound;
    server.overhead = milliseconds(1);
    CHECK(Milliseconds(Simulate(server, rows, 0)) == std::vector<double>{3, 3, 6, 6});
  }
}

TEST_CASE("who comes to a full queue is refused", "[simulator]") {
  const std::vector<SimulatedRow> rows(10, {milliseconds(1), 100});
  for (const Policy policy : {Policy::kSingle, Policy::kOurs}) {
    SimulatedServer server = Server(policy, 1);
    server.scheduling.spec.queue.max_rows = 4;
    const SimulatedRun run = Simulate(server, rows, 0);
    CHECK(run.answered == 4);
    CHECK(run.refused == 6);
    CHECK(Simulate(server, {{milliseconds(0), 513}}, 0).refused == 1);  // longer than the last bucket
  }
}

TEST_CASE("waiting is as queueing theory says: M/D/1", "[simulator]") {
  // Rows of 100 tokens, one at a time: 2 ms each. The mean wait is ρ ÷ (2 (1 − ρ)) runs.
  constexpr double kRun = 0.002;
  const std::vector<SimulatedRow> rows = Equal(120'000, 100, 7);
  for (const double load : {0.3, 0.5, 0.7, 0.8}) {
    const double expected = kRun * load / (2 * (1 - load));
    for (const Policy policy : {Policy::kOurs, Policy::kSingle}) {
      CAPTURE(load, NameOf(policy));
      const SimulatedRun run = Simulate(Server(policy, 1), AtRate(rows, load / kRun), 2000);
      CHECK(run.mean_wait_seconds == Approx(expected).epsilon(0.05));
      CHECK(run.utilisation == Approx(load).epsilon(0.01));
      CHECK(run.rows_per_second == Approx(load / kRun).epsilon(0.01));
    }
  }
}

TEST_CASE("a closed loop finds what can be done at most", "[simulator]") {
  const std::vector<SimulatedRow> rows = Equal(2000, 100, 1);
  CHECK(Saturate(Server(Policy::kSingle), rows, 4).rows_per_second == Approx(500));
  SimulatedServer two = Server(Policy::kSingle);
  two.workers = 2;
  CHECK(Saturate(two, rows, 4).rows_per_second == Approx(1000));
  CHECK(Saturate(two, rows, 1).rows_per_second == Approx(500));
  // Batches of 32: 1 ms is shared by all of them.
  const SimulatedRun fifo = Saturate(Server(Policy::kFifo32), rows, 64);
  CHECK(fifo.rows_per_second == Approx(32 / 0.033).epsilon(0.02));
  CHECK(fifo.answered == 2000);
}

TEST_CASE("a run is repeated by its seed", "[simulator]") {
  SimulatedServer server = Server(Policy::kOurs);
  server.noise = 0.2;
  const auto latencies = [&](std::uint64_t seed) {
    server.noise_seed = seed;
    return Simulate(server, AtRate(PoissonRows(LengthDistribution::Incident(512), 3000, seed), 150), 100).latencies;
  };
  CHECK(latencies(1) == latencies(1));
  CHECK(latencies(1) != latencies(2));
}

TEST_CASE("the highest rate that keeps a bound is found", "[simulator]") {
  for (const double limit : {0.37, 12.0, 100.0, 5321.0}) {
    CAPTURE(limit);
    int asked = 0;
    const double found = HighestRate(100, [&](double rate) {
      ++asked;
      return rate <= limit;
    });
    CHECK(found <= limit);
    CHECK(found > 0.989 * limit);
    CHECK(asked < 40);
  }
  CHECK(HighestRate(100, [](double) { return false; }) == 0);
}

TEST_CASE("a plan's measurements are read, what is no plan is refused", "[simulator]") {
  const auto plan = [](const std::string& device) {
    return R"({"models": [{"name": "P", "version": "1", "devices": [)" + device + "]}]}";
  };
  const std::string device = R"({"device": "cuda:0", "computes": true, "budget_bytes": 1048576,
    "buckets": [{"bucket": 32}, {"bucket": 64}],
    "calibration": [
      {"length": 32, "smooth_below": false, "failed_rows": 0, "failed_at_least_bytes": 0,
       "points": [{"rows": 1, "peak_bytes": 1000, "latency_us": 100}, {"rows": 5, "peak_bytes": 5000, "latency_us": 300}]},
      {"length": 64, "smooth_below": false, "failed_rows": 0, "failed_at_least_bytes": 0,
       "points": [{"rows": 1, "peak_bytes": 2000, "latency_us": 150.5}]}]})";
  const auto read = ModelledDevice::FromPlan(plan(device), "");
  REQUIRE(read.ok());
  CHECK(Seconds(read->Takes({3, 32})) == Approx(200e-6));
  CHECK(Seconds(read->Takes({1, 64})) == Approx(150.5e-6));
  CHECK(read->buckets() == std::vector<std::int64_t>{32, 64});
  CHECK(read->budget() == MiB(1));
  CHECK(read->kind() == DeviceKind::kCuda);
  // The margin on top of what was measured, and of what the allocator's segments may add.
  CHECK(read->memory().Peak({1, 64}).value() >= Bytes{2100});
  CHECK(ModelledDevice::FromPlan(plan(device), "P").ok());
  CHECK_FALSE(ModelledDevice::FromPlan(plan(device), "Q").ok());
  CHECK_FALSE(ModelledDevice::FromPlan(plan(R"({"device": "cuda:0", "computes": false})"), "").ok());
  for (const char* const text : {"", "{}", "[]", R"({"models": []})", R"({"models": [{"name": "P"}]})", R"({"models": 3})"}) {
    CAPTURE(text);
    CHECK_FALSE(ModelledDevice::FromPlan(text, "").ok());
  }
}

}  // namespace
}  // namespace headroom
