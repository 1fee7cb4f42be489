// What a server would do under a load, without the server and without the device. bench/README.md says how it is used, and
// simulation.h what is modelled.
//
//   headroom_simulator --plan plan.json --workers 2 --mix incident --rate 40
//   headroom_simulator --fixed-us 500 --per-token-us 20 --lengths lengths.csv --load 0.7 --policies ours,fifo32,single
//   headroom_simulator --plan plan.json --trace trace.csv --speed 3
//   headroom_simulator --plan plan.json --mix incident --p99-bound-ms 250
//
// Prints one JSON object. Exit code: 0, or 2 where the options or the files are wrong.
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/status_macros.h"
#include "bench/simulator/simulation.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWrong = 2;

struct Options {
  // The device.
  std::string plan;
  std::string model;
  double fixed_us = 0;
  double per_token_us = 0;
  std::int64_t bytes_per_token = 0;
  std::string budget;
  // The server.
  std::vector<std::int64_t> buckets;
  std::string padding = "auto";
  std::string device_kind = "cpu";
  std::int64_t max_rows = 64;
  std::int64_t queue_rows = 1024;
  std::int64_t max_delay_us = 0;
  int workers = 1;
  double overhead_us = 0;
  double noise = 0;
  std::vector<std::string> policies = {"ours"};
  // The load.
  std::string mix = "incident";
  std::string lengths;
  std::string lengths_mix;
  std::string trace;
  double speed = 1;
  std::int64_t cut = 512;
  std::size_t rows = 20'000;
  std::size_t warm_up = 1000;
  std::size_t in_flight = 256;
  double rate = 0;
  double load = 0;
  bool own_load = false;
  double p99_bound_ms = 0;
  std::uint64_t seed = 1;
};

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::StatusOr<std::map<std::string, double>> MixOf(const std::string& text) {
  std::map<std::string, double> mix;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::vector<std::string> pair = absl::StrSplit(part, '=');
    double weight = 0;
    if (pair.size() != 2 || !absl::SimpleAtod(pair[1], &weight) || weight <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("--lengths-mix: ", part, " is no NAME=WEIGHT"));
    }
    mix[pair[0]] = weight;
  }
  return mix;
}

absl::StatusOr<ModelledDevice> DeviceOf(const Options& options) {
  if (!options.plan.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadWhole(options.plan));
    return ModelledDevice::FromPlan(text, options.model);
  }
  if (options.fixed_us <= 0 && options.per_token_us <= 0) {
    return absl::InvalidArgumentError("--plan, or --fixed-us and --per-token-us, must say how long a batch runs");
  }
  const auto microseconds = [](double us) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::micro>(us));
  };
  const std::int64_t longest = options.buckets.empty() ? SequenceSpec{}.buckets.back() : options.buckets.back();
  return ModelledDevice::Of({microseconds(options.fixed_us), microseconds(options.per_token_us), Bytes{options.bytes_per_token}},
                            longest, options.max_rows);
}

ModelSpec SpecOf(const Options& options, const ModelledDevice& device) {
  ModelSpec spec;
  spec.name = "simulated";
  spec.max_batch_rows = options.max_rows;
  spec.inputs = {
      {.name = "input_ids", .type = DataType::kInt64, .dims = {kSequenceAxis}, .role = InputRole::kTokens, .value_range = {}}};
  if (!device.buckets().empty()) spec.sequence.buckets = device.buckets();
  if (!options.buckets.empty()) spec.sequence.buckets = options.buckets;
  spec.sequence.padding_safe = true;
  if (options.padding == "bucket") spec.sequence.padding = Padding::kBucket;
  if (options.padding == "multiple_of_8") spec.sequence.padding = Padding::kMultipleOf8;
  if (options.padding == "exact") spec.sequence.padding = Padding::kExact;
  // AUTO means what it does on the device of the plan; of a formula, on --device-kind.
  const bool cuda = device.kind() == DeviceKind::kCuda || options.device_kind == "cuda";
  if (options.padding == "auto") spec.sequence.padding = cuda ? Padding::kBucket : Padding::kMultipleOf8;
  spec.queue.max_rows = options.queue_rows;
  spec.queue.max_delay = std::chrono::microseconds(options.max_delay_us);
  return spec;
}

absl::StatusOr<std::vector<SimulatedRow>> RowsOf(const Options& options) {
  if (!options.trace.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadWhole(options.trace));
    return TraceRows(text, options.speed, options.cut);
  }
  if (options.lengths.empty()) return PoissonRows(LengthDistribution::Incident(options.cut), options.rows, options.seed);
  ASSIGN_OR_RETURN(const std::string text, ReadWhole(options.lengths));
  ASSIGN_OR_RETURN(const auto mix, MixOf(options.lengths_mix));
  ASSIGN_OR_RETURN(const LengthDistribution lengths, LengthDistribution::FromCsv(text, mix, options.cut));
  return PoissonRows(lengths, options.rows, options.seed);
}

Json AsJson(const SimulatedRun& run) {
  const double batches = static_cast<double>(std::max<std::size_t>(1, run.batches));
  return {{"answered", run.answered},
          {"refused", run.refused},
          {"rows_per_second", run.rows_per_second},
          {"p50_ms", 1000 * run.LatencyAt(0.5)},
          {"p90_ms", 1000 * run.LatencyAt(0.9)},
          {"p99_ms", 1000 * run.LatencyAt(0.99)},
          {"mean_wait_ms", 1000 * run.mean_wait_seconds},
          {"batches", run.batches},
          {"rows_per_batch", static_cast<double>(run.answered) / batches},
          {"useful_token_share", run.useful_share},
          {"utilisation", run.utilisation}};
}

// The runs of one policy, as the options ask for them. `reference` is the saturation of the first.
Json RunPolicy(const Options& options, const SimulatedServer& server, const std::vector<SimulatedRow>& rows, double& reference) {
  Json json = {{"policy", NameOf(server.policy)}};
  if (!options.trace.empty()) {
    json["trace"] = AsJson(Simulate(server, rows, 0));
    return json;
  }
  const SimulatedRun saturated = Saturate(server, rows, options.in_flight);
  if (reference == 0) reference = saturated.rows_per_second;
  json["saturation"] = {{"rows_in_flight", options.in_flight},
                        {"rows_per_second", saturated.rows_per_second},
                        {"rows_per_batch", static_cast<double>(saturated.answered) / static_cast<double>(saturated.batches)},
                        {"useful_token_share", saturated.useful_share}};
  const double rate = options.rate > 0 ? options.rate : options.load * (options.own_load ? saturated.rows_per_second : reference);
  if (rate > 0) {
    json["open_loop"] = {{"rate", rate}};
    json["open_loop"].update(AsJson(Simulate(server, AtRate(rows, rate), options.warm_up)));
  }
  if (options.p99_bound_ms > 0) {
    const double highest = HighestRate(saturated.rows_per_second / 2, [&](double tried) {
      const SimulatedRun run = Simulate(server, AtRate(rows, tried), options.warm_up);
      return run.refused == 0 && 1000 * run.LatencyAt(0.99) <= options.p99_bound_ms;
    });
    json["capacity"] = {{"p99_bound_ms", options.p99_bound_ms}, {"highest_rate", highest}};
    if (highest > 0) json["capacity"]["at_that_rate"] = AsJson(Simulate(server, AtRate(rows, highest), options.warm_up));
  }
  return json;
}

absl::StatusOr<Json> Run(const Options& options) {
  if (!std::is_sorted(options.buckets.begin(), options.buckets.end(), std::less_equal<>())) {
    return absl::InvalidArgumentError("--buckets must ascend");
  }
  ASSIGN_OR_RETURN(const ModelledDevice device, DeviceOf(options));
  ASSIGN_OR_RETURN(const std::vector<SimulatedRow> rows, RowsOf(options));
  SimulatedServer server;
  server.scheduling.spec = SpecOf(options, device);
  server.scheduling.device = &device;
  server.scheduling.budget = device.budget();
  if (device.budget() == Bytes{0}) server.scheduling.budget = {std::numeric_limits<std::int64_t>::max()};
  if (!options.budget.empty()) {
    ASSIGN_OR_RETURN(server.scheduling.budget, ParseBytes(options.budget));
  }
  server.workers = options.workers;
  server.overhead = std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::micro>(options.overhead_us));
  server.noise = options.noise;
  server.noise_seed = options.seed;

  Json policies = Json::array();
  double reference = 0;
  for (const std::string& name : options.policies) {
    const auto policy = PolicyOf(name);
    if (!policy) return absl::InvalidArgumentError(absl::StrCat("--policies: there are ours, fifo32 and single, not ", name));
    server.policy = *policy;
    policies.push_back(RunPolicy(options, server, rows, reference));
  }
  return Json{{"seed", options.seed}, {"rows", rows.size()}, {"workers", options.workers}, {"policies", policies}};
}

void Describe(CLI::App& app, Options& options) {
  app.add_option("--plan", options.plan, "the output of `headroom plan --json`: what batches take, and the budget");
  app.add_option("--model", options.model, "which model of the plan");
  app.add_option("--fixed-us", options.fixed_us, "without a plan: what every batch takes, in µs")->check(CLI::NonNegativeNumber);
  app.add_option("--per-token-us", options.per_token_us, "and what each of its tokens adds")->check(CLI::NonNegativeNumber);
  app.add_option("--bytes-per-token", options.bytes_per_token, "without a plan: memory that each token takes")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--budget", options.budget, "memory of running batches, such as 2GiB; default: the plan's, or no bound");
  app.add_option("--buckets", options.buckets, "default: the plan's, or 32,64,128,256,512")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--padding", options.padding)
      ->check(CLI::IsMember({"auto", "bucket", "multiple_of_8", "exact"}))
      ->capture_default_str();
  app.add_option("--device-kind", options.device_kind, "what AUTO padding is of, without a plan")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--max-rows", options.max_rows, "the largest batch")->check(CLI::Range(1, 65536))->capture_default_str();
  app.add_option("--queue-rows", options.queue_rows, "that may wait")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--max-delay-us", options.max_delay_us, "that a row waits for company")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--workers", options.workers, "that run batches side by side")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--overhead-us", options.overhead_us, "that a worker spends on each batch beside its run")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--noise", options.noise, "of runs: the deviation of the logarithm of a factor")
      ->check(CLI::Range(0.0, 2.0))
      ->capture_default_str();
  app.add_option("--policies", options.policies, "ours, fifo32, single")->delimiter(',')->capture_default_str();
  app.add_option("--mix", options.mix, "of lengths, unless --lengths names a file")
      ->check(CLI::IsMember({"incident"}))
      ->capture_default_str();
  app.add_option("--lengths", options.lengths, "a CSV file: quantile,NAME,… or length,count or length");
  app.add_option("--lengths-mix", options.lengths_mix, "weights of its columns, NAME=WEIGHT,…; default: all alike");
  app.add_option("--trace", options.trace, "a CSV file of arrival_seconds and length, instead of a mix and a rate");
  app.add_option("--speed", options.speed, "times the trace's own")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--cut", options.cut, "longer rows are cut to this length; 0: none is")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--rows", options.rows, "to simulate")->check(CLI::Range(1, 100'000'000))->capture_default_str();
  app.add_option("--warm-up", options.warm_up, "rows that count for no latency")->capture_default_str();
  app.add_option("--in-flight", options.in_flight, "rows inside at saturation")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--rate", options.rate, "rows a second, Poisson")->check(CLI::PositiveNumber);
  app.add_option("--load", options.load, "instead: as a share of the first policy's saturation")->check(CLI::PositiveNumber);
  app.add_flag("--own-load", options.own_load, "of each policy's own saturation");
  app.add_option("--p99-bound-ms", options.p99_bound_ms, "find the highest rate that keeps it, nobody refused")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed)->capture_default_str();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("A server on a virtual clock with a modelled device.");
  Describe(app, options);
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<Json> report = Run(options);
  if (!report.ok()) {
    std::fprintf(stderr, "headroom_simulator: %s\n", std::string(report.status().message()).c_str());
    return kWrong;
  }
  std::printf("%s\n", report->dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) { return headroom::Main(argc, argv); }
