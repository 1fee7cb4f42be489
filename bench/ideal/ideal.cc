// What the model itself can do: the same module in this process, no server, everything known beforehand.
//
//   headroom_ideal --model FILE --workers 2 --mix search --lengths lengths.csv --cut 512 --rows 1000 --rounds 5
//   headroom_ideal --model FILE … --turns        reads a round's seed a line from stdin: for turns with a server (bench/limits.py)
//
// Batches are run by the runtime that the server uses. Before the first round it measures how long a batch of so many rows and such
// a length takes while every worker runs the same (the shortest of two runs). A round's rows are all known: they are grouped so
// that the sum of the measured times is least (grouping.h), each group is padded to its longest row, tensors are made beforehand,
// and the workers take the groups from the longest run to the shortest, so that they end together. What is timed is the runs.
//
// FILE is a TorchScript module of input_ids and attention_mask, [rows, length] of INT64. Prints one JSON object a round. Exit code:
// 0, or 2 where nothing could be measured.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "base/status_macros.h"
#include "batching/latency_model.h"
#include "bench/ideal/crew.h"
#include "bench/ideal/grouping.h"
#include "bench/token_model.h"
#include "bench/traffic/length_mix.h"
#include "runtime/sample_batch.h"
#include "runtime/torch/torch_device.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kNotMeasured = 2;
constexpr const char* kLeastTime = "least-time";
constexpr std::int64_t kMostTokens = 1024;  // of a batch that is measured; beyond, time grows in proportion
constexpr int kRepeats = 2;

struct Options {
  std::string model;
  std::string device = "cpu";
  std::string limit = "4GiB";
  int workers = 2;
  int intra_op_threads = 1;
  std::string mix = "search";
  std::string lengths;
  std::int64_t cut = 512;
  std::size_t rows = 1000;
  std::string grouping = kLeastTime;
  std::string latencies;  // file; empty: measured anew
  GroupLimits groups{64, 1};
  double highest_id = 999;
  int rounds = 1;
  std::uint64_t seed = 1;
  bool turns = false;
};

absl::StatusOr<std::unique_ptr<Device>> DeviceOf(const Options& options) {
  RETURN_IF_ERROR(InitializeTorch({options.intra_op_threads}));
  ASSIGN_OR_RETURN(const Bytes limit, ParseBytes(options.limit));
  if (options.device == "cpu") return MakeCpuDevice(limit);
  if (options.device == "cuda:0") return MakeCudaDevice(0, limit);
  return absl::InvalidArgumentError(absl::StrCat("--device must be cpu or cuda:0, not ", options.device));
}

class Ideal {
 public:
  explicit Ideal(const Options& options) : options_(options), spec_(TokenModel(options.highest_id, options.groups.most_rows)) {}

  absl::Status Prepare() {
    std::string quantiles;
    if (!options_.lengths.empty()) {
      std::ifstream stream(options_.lengths, std::ios::binary);
      quantiles.assign(std::istreambuf_iterator<char>(stream), {});
      if (!stream) return absl::NotFoundError(absl::StrCat("cannot read ", options_.lengths));
    }
    ASSIGN_OR_RETURN(draw_, MakeLengthDraw(options_.mix, quantiles, options_.cut));
    ASSIGN_OR_RETURN(device_, DeviceOf(options_));
    crew_ = std::make_unique<Crew>(options_.workers);
    ASSIGN_OR_RETURN(model_, device_->Load(options_.model, spec_));
    const std::vector<std::int64_t> sample = DrawLengths(draw_, options_.rows, options_.seed);
    if (options_.grouping != kLeastTime) return absl::OkStatus();
    const std::int64_t longest = *std::max_element(sample.begin(), sample.end());
    if (const std::vector<LengthCurve> kept = KeptLatency(); !kept.empty() && kept.back().length >= longest) {
      latency_ = std::make_unique<CalibratedLatency>(kept);
      return absl::OkStatus();
    }
    return MeasureLatency(longest);
  }

  absl::StatusOr<Json> Round(std::uint64_t seed);

 private:
  absl::Status MeasureLatency(std::int64_t longest);
  std::vector<LengthCurve> KeptLatency() const;
  void KeepLatency(const std::vector<LengthCurve>& curves) const;
  absl::StatusOr<Duration> MeasureShape(BatchShape shape);
  absl::StatusOr<Duration> TimedRun(const PaddedBatch& batch);
  PaddedBatch BatchOf(const RowGroup& group, std::span<const std::int64_t> lengths) const;
  std::vector<RowGroup> GroupsOf(std::span<const std::int64_t> lengths) const;
  // Seconds; where nothing was measured, in proportion to the tokens, which is enough to tell which batch is longer.
  double CostOf(BatchShape shape) const {
    return latency_ != nullptr ? Seconds(latency_->Of(shape)) : static_cast<double>(shape.rows * shape.length);
  }

  const Options& options_;
  const ModelSpec spec_;
  LengthDraw draw_;
  std::unique_ptr<Device> device_;
  std::shared_ptr<const LoadedModel> model_;
  std::unique_ptr<CalibratedLatency> latency_;  // for groups of least time alone
  std::unique_ptr<Crew> crew_;                  // last: it ends before what its threads use
};

absl::StatusOr<Duration> Ideal::TimedRun(const PaddedBatch& batch) {
  const TimePoint start = RealClock().Now();
  const RunResult result = device_->Run(*model_, batch);
  const Duration took = RealClock().Now() - start;
  if (std::holds_alternative<RunOutput>(result)) return took;
  const auto* const error = std::get_if<ModelError>(&result);
  return absl::InternalError(absl::StrCat(batch.shape.rows, " rows of ", batch.shape.length, " did not run",
                                          error != nullptr ? ": " : "", error != nullptr ? error->text : ""));
}

absl::StatusOr<Duration> Ideal::MeasureShape(BatchShape shape) {
  const PaddedBatch batch = SampleBatch(spec_, shape, *device_, 1);
  std::vector<absl::StatusOr<Duration>> shortest(static_cast<std::size_t>(crew_->size()), Duration::max());
  crew_->RunAll([&](int worker) {
    auto& mine = shortest[static_cast<std::size_t>(worker)];
    for (int run = 0; run <= kRepeats && mine.ok(); ++run) {
      auto took = TimedRun(batch);
      if (!took.ok()) {
        mine = took;
      } else if (run > 0) {  // the first one warms up
        mine = std::min(*mine, *took);
      }
    }
  });
  Duration least = Duration::max();
  for (const auto& of_worker : shortest) {
    RETURN_IF_ERROR(of_worker.status());
    least = std::min(least, *of_worker);
  }
  return least;
}

absl::Status Ideal::MeasureLatency(std::int64_t longest) {
  std::vector<LengthCurve> curves;
  std::vector<std::int64_t> lengths;
  // In steps of a third, more or less: 8, 16, 24, 32, 40, 48, 64, 80, 104, 136, 176, 232, 304, 400.
  for (std::int64_t length = 8; length < longest; length += std::max<std::int64_t>(8, length / 3 / 8 * 8)) {
    lengths.push_back(length);
  }
  lengths.push_back(longest);
  for (const std::int64_t length : lengths) {
    LengthCurve& curve = curves.emplace_back();
    curve.length = length;
    for (std::int64_t rows = 1; rows <= options_.groups.most_rows && (rows == 1 || rows * length <= kMostTokens); rows *= 2) {
      ASSIGN_OR_RETURN(const Duration took, MeasureShape({rows, length}));
      curve.points.push_back({rows, Bytes{1}, took, Bytes{1}});
    }
  }
  latency_ = std::make_unique<CalibratedLatency>(curves);
  KeepLatency(curves);
  return absl::OkStatus();
}

// A line for each shape: rows, length, nanoseconds; lengths and rows ascend. A file that is not there, or not so, is nothing kept.
std::vector<LengthCurve> Ideal::KeptLatency() const {
  std::vector<LengthCurve> curves;
  std::ifstream stream(options_.latencies);
  BatchShape shape;
  std::int64_t nanoseconds = 0;
  while (stream >> shape.rows >> shape.length >> nanoseconds) {
    if (curves.empty() || curves.back().length < shape.length) curves.emplace_back().length = shape.length;
    std::vector<Measurement>& points = curves.back().points;
    if (curves.back().length != shape.length || (!points.empty() && points.back().rows >= shape.rows)) return {};
    points.push_back({shape.rows, Bytes{1}, Duration(nanoseconds), Bytes{1}});
  }
  return curves;
}

void Ideal::KeepLatency(const std::vector<LengthCurve>& curves) const {
  if (options_.latencies.empty()) return;
  std::ofstream stream(options_.latencies);
  for (const LengthCurve& curve : curves) {
    for (const Measurement& point : curve.points)
      stream << point.rows << ' ' << curve.length << ' ' << point.latency.count() << '\n';
  }
}

PaddedBatch Ideal::BatchOf(const RowGroup& group, std::span<const std::int64_t> lengths) const {
  const auto rows = static_cast<std::int64_t>(group.rows.size());
  PaddedBatch batch = SampleBatch(spec_, {rows, group.length}, *device_, 1);
  HostTensor& mask = batch.inputs[static_cast<std::size_t>(spec_.mask_index())];
  const std::int64_t element = SizeOf(mask.type);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t real = lengths[group.rows[static_cast<std::size_t>(row)]];
    std::memset(mask.data.get() + (row * group.length + real) * element, 0,
                static_cast<std::size_t>((group.length - real) * element));
  }
  return batch;
}

std::vector<RowGroup> Ideal::GroupsOf(std::span<const std::int64_t> lengths) const {
  if (options_.grouping == "single") return SingleRowGroups(lengths, options_.groups);
  if (options_.grouping == "equal-length") return EqualLengthGroups(lengths, options_.groups);
  return LeastCostGroups(lengths, options_.groups, [this](BatchShape shape) { return CostOf(shape); });
}

absl::StatusOr<Json> Ideal::Round(std::uint64_t seed) {
  const std::vector<std::int64_t> lengths = DrawLengths(draw_, options_.rows, seed);
  std::vector<RowGroup> groups = GroupsOf(lengths);
  const auto shape_of = [](const RowGroup& group) {
    return BatchShape{static_cast<std::int64_t>(group.rows.size()), group.length};
  };
  std::stable_sort(groups.begin(), groups.end(),
                   [&](const RowGroup& a, const RowGroup& b) { return CostOf(shape_of(a)) > CostOf(shape_of(b)); });
  std::vector<PaddedBatch> batches;
  std::int64_t computed = 0;
  double foreseen = 0;
  for (const RowGroup& group : groups) {
    batches.push_back(BatchOf(group, lengths));
    computed += shape_of(group).rows * group.length;
    foreseen += CostOf(shape_of(group)) / crew_->size();
  }
  std::atomic<std::size_t> next{0};
  std::vector<absl::Status> ended(static_cast<std::size_t>(crew_->size()));
  const TimePoint start = RealClock().Now();
  crew_->RunAll([&](int worker) {
    for (std::size_t i = next++; i < batches.size(); i = next++) {
      if (auto took = TimedRun(batches[i]); !took.ok()) ended[static_cast<std::size_t>(worker)] = took.status();
    }
  });
  const double seconds = Seconds(RealClock().Now() - start);
  for (const absl::Status& status : ended) RETURN_IF_ERROR(status);
  const std::int64_t useful = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return Json{{"seed", seed},
              {"rows", options_.rows},
              {"tokens", useful},
              {"computed_tokens", computed},
              {"batches", batches.size()},
              {"seconds", seconds},
              {"foreseen_seconds", latency_ != nullptr ? Json(foreseen) : Json()},
              {"rows_per_second", static_cast<double>(options_.rows) / seconds}};
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "headroom_ideal: %s\n", std::string(status.message()).c_str());
  return kNotMeasured;
}

// A round for each seed that comes, until there are no more.
int TakeTurns(Ideal& ideal) {
  std::printf("%s\n", Json{{"ready", true}}.dump().c_str());
  std::fflush(stdout);
  std::uint64_t seed = 0;
  while (std::cin >> seed) {
    const auto told = ideal.Round(seed);
    if (!told.ok()) return Fail(told.status());
    std::printf("%s\n", told->dump().c_str());
    std::fflush(stdout);
  }
  return 0;
}

int Measure(const Options& options) {
  Ideal ideal(options);
  if (const absl::Status status = ideal.Prepare(); !status.ok()) return Fail(status);
  if (options.turns) return TakeTurns(ideal);
  for (int round = 0; round < options.rounds; ++round) {
    const auto told = ideal.Round(options.seed + static_cast<std::uint64_t>(round));
    if (!told.ok()) return Fail(told.status());
    std::printf("%s\n", told->dump().c_str());
  }
  return 0;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("The same module in-process, with everything known beforehand.");
  app.add_option("--model", options.model, "a TorchScript module of input_ids and attention_mask")->required();
  app.add_option("--device", options.device, "cpu or cuda:0")->capture_default_str();
  app.add_option("--limit", options.limit, "what tensors may hold")->capture_default_str();
  app.add_option("--workers", options.workers, "that run batches at once")->check(CLI::Range(1, 256))->capture_default_str();
  app.add_option("--intra-op-threads", options.intra_op_threads, "of each worker")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--mix", options.mix, "lengths: search, incident, LOW-HIGH, or one length")->capture_default_str();
  app.add_option("--lengths", options.lengths, "FILE, a table of quantiles (quantile,NAME,...), which the search mix needs");
  app.add_option("--cut", options.cut, "tokens, to which longer rows are cut; 0: none are")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--rows", options.rows, "of a round")->check(CLI::Range(1, 1000000))->capture_default_str();
  app.add_option("--grouping", options.grouping, "least-time, equal-length, single")
      ->check(CLI::IsMember({kLeastTime, "equal-length", "single"}))
      ->capture_default_str();
  app.add_option("--latencies", options.latencies, "FILE that keeps what was measured of this model; read where it is there");
  app.add_option("--max-rows", options.groups.most_rows, "of a batch")->check(CLI::Range(1, 65536))->capture_default_str();
  app.add_option("--multiple", options.groups.multiple, "batches are padded to a multiple of this")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  app.add_option("--highest-id", options.highest_id, "token ids go up to this")->capture_default_str();
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 10000))->capture_default_str();
  app.add_option("--seed", options.seed, "of the first round")->capture_default_str();
  app.add_flag("--turns", options.turns, "a round for each seed that is read from stdin");
  CLI11_PARSE(app, argc, argv);
  return Measure(options);
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) { return headroom::Main(argc, argv); }
