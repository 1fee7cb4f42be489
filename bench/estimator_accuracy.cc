// How right the estimator is: a model is calibrated as at a start, and then run at shapes that calibration has not seen.
//
//   headroom_estimator_accuracy shapes --model FILE [--device cpu] …
//     each shape from an empty cache: |estimated − actual| ÷ actual, and how often an estimate with its margin was too low
//   headroom_dry --card 2GiB -- headroom_estimator_accuracy sequences --model FILE --device cuda:0 …
//     sequences of batches as a server runs them, each as large as its reservation allows, the cache left as it is: how many run
//     out of memory
//
// FILE is a TorchScript module of input_ids and attention_mask, [rows, length] of INT64: MiniLM, or a toy of test/models. Prints
// one JSON object. Exit code: 0, 1 where a target is missed, 2 where nothing could be measured.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "base/status_macros.h"
#include "base/sync.h"
#include "batching/bucket_ladder.h"
#include "bench/discounted_device.h"
#include "bench/token_model.h"
#include "memory/calibration.h"
#include "memory/estimate_correction.h"
#include "memory/memory_budget.h"
#include "runtime/sample_batch.h"
#include "runtime/torch/torch_device.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMissed = 1;
constexpr int kNotMeasured = 2;
constexpr double kMedianTarget = 0.01;
constexpr double kTailTarget = 0.05;
constexpr double kMargin = 0.05;  // ModelSpec::safety_margin's default
constexpr int kWarmUpRuns = 2;

struct Options {
  std::string model;
  std::string device = "cpu";
  std::string padding = "auto";
  std::string limit;  // empty: the device's own
  double highest_id = 999;
  std::int64_t max_rows = 64;
  double fraction = 0.8;
  std::uint64_t seed = 1;
  int shapes = 500;
  int sequences = 500;
  int batches = 24;
  int workers = 1;
  double discount = 1;
};

ModelSpec SpecOf(const Options& options) {
  ModelSpec spec = TokenModel(options.highest_id, options.max_rows);
  spec.safety_margin = kMargin;
  const std::map<std::string, Padding> paddings = {
      {"auto", Padding::kAuto}, {"bucket", Padding::kBucket}, {"multiple_of_8", Padding::kMultipleOf8}, {"exact", Padding::kExact}};
  spec.sequence.padding = paddings.at(options.padding);
  return spec;
}

absl::StatusOr<std::unique_ptr<Device>> DeviceOf(const Options& options) {
  RETURN_IF_ERROR(InitializeTorch({}));
  std::optional<Bytes> limit;
  if (!options.limit.empty()) {
    ASSIGN_OR_RETURN(limit, ParseBytes(options.limit));
  }
  if (options.device == "cpu") return MakeCpuDevice(limit.value_or(GiB(1)));
  if (options.device == "cuda:0") return MakeCudaDevice(0, limit);
  return absl::InvalidArgumentError(absl::StrCat("--device must be cpu or cuda:0, not ", options.device));
}

// A model, loaded and calibrated as at a start.
class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), spec_(SpecOf(options)), random_(options.seed) {}

  absl::Status Prepare() {
    ASSIGN_OR_RETURN(std::unique_ptr<Device> device, DeviceOf(options_));
    device_ = MakeDiscountedDevice(std::move(device), options_.discount);
    ladder_ = std::make_unique<BucketLadder>(spec_, device_->kind());
    budget_ = std::make_unique<MemoryBudget>(*device_, options_.fraction);
    ASSIGN_OR_RETURN(model_, device_->Load(options_.model, spec_));
    const CalibrationPlan plan = ladder_->ShapesToCalibrate();
    for (const CalibrationPlan::Length& length : plan.lengths) {
      for (int run = 0; run < kWarmUpRuns; ++run) Run({1, length.length});
    }
    RETURN_IF_ERROR(budget_->MarkAtRest());
    ASSIGN_OR_RETURN(const BudgetSnapshot snapshot, budget_->Snapshot());
    limit_ = snapshot.budget;
    const auto probe = [this](BatchShape shape) { return Probe(shape); };
    ASSIGN_OR_RETURN(Calibration calibration, Calibrate(plan, limit_, probe, [](std::size_t, std::size_t, std::int64_t) {}, {}));
    for (const LengthCurve& curve : calibration.curves) {
      if (curve.points.empty()) continue;
      lengths_.push_back(curve.length);
      for (const Measurement& point : curve.points) seen_.insert({point.rows, curve.length});
    }
    estimator_ =
        std::make_unique<CalibratedEstimator>(std::move(calibration.curves), CalibratedEstimator::RoundingOn(device_->kind()));
    reserved_ = std::make_unique<ReservationEstimator>(*estimator_, learned_, TimePoint{});
    return budget_->MarkAtRest();
  }

  absl::StatusOr<Json> MeasureShapes();
  absl::StatusOr<Json> RunSequences();

 private:
  RunResult Run(BatchShape shape) { return device_->Run(*model_, SampleBatch(spec_, shape, *device_, 1)); }
  RunResult Probe(BatchShape shape) { return device_->Probe(*model_, SampleBatch(spec_, shape, *device_, 1), limit_); }

  std::int64_t Draw(std::mt19937_64& random, std::int64_t low, std::int64_t high) const {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  }
  bool Fits(BatchShape shape, Bytes room) const {
    const auto needs = reserved_->Peak(shape);
    return needs.ok() && *needs <= room;
  }
  // A padded length that occurs, up to the longest that was measured.
  std::int64_t DrawLength(std::mt19937_64& random) const {
    const std::int64_t length = Draw(random, 1, lengths_.back());
    const auto placement = ladder_->Place(length);
    return ladder_->PaddedLength(placement->bucket, length);
  }
  std::int64_t MostRows(std::int64_t length, Bytes room) const {
    std::int64_t low = 0;
    std::int64_t high = spec_.max_batch_rows;
    while (low < high) {
      const std::int64_t middle = (low + high + 1) / 2;
      if (Fits({middle, length}, room)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  // What a worker of a server does with one batch; nothing fits: nothing is run.
  struct Tally {
    std::int64_t runs = 0;
    std::int64_t out_of_memory = 0;
    std::string failure;
  };
  void RunBatches(int count, std::mt19937_64& random, Tally& tally);
  struct SequenceTurns;
  struct Claim {
    Reservation reservation;
    BatchShape shape;
  };
  absl::StatusOr<Claim> ClaimBatch(std::mt19937_64& random);

  const Options& options_;
  const ModelSpec spec_;
  std::mt19937_64 random_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<BucketLadder> ladder_;
  std::unique_ptr<MemoryBudget> budget_;
  std::shared_ptr<const LoadedModel> model_;
  std::unique_ptr<CalibratedEstimator> estimator_;
  const LearnedMemory learned_{{}, kMargin};  // of nothing but the margin
  std::unique_ptr<ReservationEstimator> reserved_;
  Bytes limit_{0};
  std::vector<std::int64_t> lengths_;
  std::set<BatchShape> seen_;
  Mutex planning_;
};

double Percentile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(std::llround(share * static_cast<double>(sorted.size() - 1)))];
}

absl::StatusOr<Json> Bench::MeasureShapes() {
  constexpr int kDrawsAShape = 200;
  std::set<BatchShape> known = seen_;
  std::vector<double> errors;
  std::vector<double> errors_from_mib;
  std::int64_t under = 0;
  std::int64_t under_margin = 0;
  double worst_under = 0;
  Json worst;
  for (int draw = 0; static_cast<int>(errors.size()) < options_.shapes && draw < options_.shapes * kDrawsAShape; ++draw) {
    const std::int64_t length = DrawLength(random_);
    const BatchShape shape{Draw(random_, 1, spec_.max_batch_rows), length};
    if (!Fits(shape, limit_) || !known.insert(shape).second) continue;
    ASSIGN_OR_RETURN(const Bytes estimated, estimator_->Peak(shape));
    const RunResult result = Probe(shape);
    const auto* const output = std::get_if<RunOutput>(&result);
    if (output == nullptr || !output->peak) {
      return absl::InternalError(absl::StrCat(shape.rows, " rows of ", shape.length, " did not run"));
    }
    const double actual = std::max(1.0, static_cast<double>(output->peak->count));
    const double error = (static_cast<double>(estimated.count) - actual) / actual;
    under += error < 0 ? 1 : 0;
    under_margin += (1 + error) * (1 + kMargin) < 1 ? 1 : 0;
    worst_under = std::min(worst_under, error);
    if (errors.empty() || std::abs(error) >= *std::max_element(errors.begin(), errors.end())) {
      worst = {{"rows", shape.rows}, {"length", shape.length}, {"estimated", estimated.count}, {"actual", output->peak->count}};
    }
    errors.push_back(std::abs(error));
    if (*output->peak >= MiB(1)) errors_from_mib.push_back(std::abs(error));
  }
  if (errors.empty()) return absl::InternalError("no shape fits that calibration has not seen");
  std::sort(errors.begin(), errors.end());
  std::sort(errors_from_mib.begin(), errors_from_mib.end());
  const double median = Percentile(errors, 0.5);
  const double tail = Percentile(errors, 0.99);
  return Json{{"shapes", errors.size()},
              {"points_calibrated", seen_.size()},
              {"lengths_calibrated", lengths_.size()},
              {"limit_bytes", limit_.count},
              {"error_p50", median},
              {"error_p99", tail},
              {"error_max", errors.back()},
              // The allowance for rounding is some KiB, which is much of a small peak only.
              {"shapes_from_1_mib", errors_from_mib.size()},
              {"error_p99_from_1_mib", errors_from_mib.empty() ? 0.0 : Percentile(errors_from_mib, 0.99)},
              {"worst", worst},
              {"under_estimates", under},
              {"worst_under_estimate", worst_under},
              {"under_estimates_beyond_margin", under_margin},
              {"met", median <= kMedianTarget && tail <= kTailTarget && under_margin == 0}};
}

absl::StatusOr<Bench::Claim> Bench::ClaimBatch(std::mt19937_64& random) {
  constexpr int kTries = 8;
  // As a server's workers: one plans at a time, with all that is available, and keeps what its batch needs.
  MutexLock turn(planning_);
  ASSIGN_OR_RETURN(Reservation reservation, budget_->ReserveAvailable());
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const std::int64_t length = DrawLength(random);
    const std::int64_t most = MostRows(length, reservation.bytes());
    if (most == 0) continue;
    // Every other batch is as large as may be: those are what comes near the limit.
    const BatchShape shape{Draw(random, 0, 1) == 0 ? most : Draw(random, 1, most), length};
    reservation.Shrink(reserved_->Peak(shape).value());
    return Claim{std::move(reservation), shape};
  }
  return Claim{};
}

void Bench::RunBatches(int count, std::mt19937_64& random, Tally& tally) {
  for (int i = 0; i < count; ++i) {
    auto claim = ClaimBatch(random);
    if (!claim.ok()) {
      tally.failure = std::string(claim.status().message());
      return;
    }
    if (claim->shape.rows == 0) continue;
    const RunResult result = Run(claim->shape);
    ++tally.runs;
    if (std::holds_alternative<OutOfMemory>(result)) {
      ++tally.out_of_memory;
      if (tally.failure.empty()) tally.failure = absl::StrCat(claim->shape.rows, " rows of ", claim->shape.length);
    } else if (!std::holds_alternative<RunOutput>(result)) {
      tally.failure = absl::StrCat(claim->shape.rows, " rows of ", claim->shape.length, " failed");
      return;
    }
  }
}

// What is done between sequences, while no worker runs: figures are read, and the next begins from an empty cache.
struct Bench::SequenceTurns {
  SequenceTurns(Bench& of, const std::vector<Tally>& workers) : bench(of), tallies(workers) {}

  void Next() {
    if (!started) {
      started = true;
      status = bench.budget_->MarkAtRest();
      return;
    }
    std::int64_t out_of_memory = 0;
    for (const Tally& tally : tallies) out_of_memory += tally.out_of_memory;
    sequences_hit += out_of_memory > seen ? 1 : 0;
    seen = out_of_memory;
    const auto memory = bench.device_->Memory();
    const auto snapshot = bench.budget_->Snapshot();
    if (!memory.ok() || !snapshot.ok()) {
      status = memory.ok() ? snapshot.status() : memory.status();
      return;
    }
    most_unusable = std::max(most_unusable, memory->unusable);
    peak = std::max(peak, snapshot->peak);
    bench.device_->EmptyCache();
  }

  Bench& bench;
  const std::vector<Tally>& tallies;
  bool started = false;
  absl::Status status;
  std::int64_t seen = 0;
  int sequences_hit = 0;
  Bytes most_unusable{0};
  Bytes peak{0};
};

absl::StatusOr<Json> Bench::RunSequences() {
  // Workers live as long as a server's: a thread's stream and workspace stay, and are memory at rest.
  std::vector<Tally> tallies(static_cast<std::size_t>(options_.workers));
  SequenceTurns turns(*this, tallies);
  std::barrier meeting(options_.workers, [&]() noexcept { turns.Next(); });
  std::vector<std::thread> workers;
  for (Tally& tally : tallies) {
    workers.emplace_back([&, seed = random_()] {
      std::mt19937_64 random(seed);
      Run({1, lengths_.front()});
      meeting.arrive_and_wait();
      for (int sequence = 0; sequence < options_.sequences; ++sequence) {
        RunBatches(options_.batches / options_.workers, random, tally);
        meeting.arrive_and_wait();
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  RETURN_IF_ERROR(turns.status);
  std::int64_t runs = 0;
  std::int64_t out_of_memory = 0;
  std::string first;
  for (const Tally& tally : tallies) {
    runs += tally.runs;
    out_of_memory += tally.out_of_memory;
    if (first.empty()) first = tally.failure;
  }
  return Json{{"sequences", options_.sequences},
              {"runs", runs},
              {"workers", options_.workers},
              {"fraction", options_.fraction},
              {"discount", options_.discount},
              {"max_rows", options_.max_rows},
              {"budget_bytes", limit_.count},
              {"peak_held_over_rest_bytes", turns.peak.count},
              {"most_unusable_bytes", turns.most_unusable.count},
              {"out_of_memory", out_of_memory},
              {"sequences_out_of_memory", turns.sequences_hit},
              {"first", first},
              {"met", out_of_memory == 0 && first.empty()}};
}

int Measure(const Options& options, const std::string& what) {
  Bench bench(options);
  absl::Status status = bench.Prepare();
  absl::StatusOr<Json> told = absl::InternalError("not measured");
  if (status.ok()) {
    told = what == "shapes" ? bench.MeasureShapes() : bench.RunSequences();
    status = told.status();
  }
  if (!status.ok()) {
    std::fprintf(stderr, "headroom_estimator_accuracy: %s\n", std::string(status.message()).c_str());
    return kNotMeasured;
  }
  const Json all = {{"tool", "estimator_accuracy"}, {"what", what},         {"model", options.model},
                    {"device", options.device},     {"seed", options.seed}, {"figures", *told}};
  std::printf("%s\n", all.dump().c_str());
  return (*told)["met"] ? 0 : kMissed;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("How right the estimator is, on shapes that calibration has not seen.");
  app.require_subcommand(1);
  CLI::App* const shapes = app.add_subcommand("shapes", "one shape after the other, each from an empty cache");
  CLI::App* const sequences = app.add_subcommand("sequences", "sequences of batches within a budget, the cache left as it is");
  for (CLI::App* const verb : {shapes, sequences}) {
    verb->add_option("--model", options.model, "a TorchScript module of input_ids and attention_mask")->required();
    verb->add_option("--device", options.device, "cpu or cuda:0")->capture_default_str();
    verb->add_option("--limit", options.limit, "what the process may use of the device; on the CPU 1GiB");
    verb->add_option("--padding", options.padding, "auto, bucket, multiple_of_8, exact")
        ->check(CLI::IsMember({"auto", "bucket", "multiple_of_8", "exact"}))
        ->capture_default_str();
    verb->add_option("--highest-id", options.highest_id, "token ids go up to this")->capture_default_str();
    verb->add_option("--max-rows", options.max_rows, "the largest batch")->check(CLI::Range(1, 65536))->capture_default_str();
    verb->add_option("--fraction", options.fraction, "of the free memory")->check(CLI::Range(0.01, 1.0))->capture_default_str();
    verb->add_option("--seed", options.seed)->capture_default_str();
  }
  shapes->add_option("--shapes", options.shapes)->check(CLI::Range(1, 1000000))->capture_default_str();
  sequences->add_option("--sequences", options.sequences)->check(CLI::Range(1, 1000000))->capture_default_str();
  sequences->add_option("--batches", options.batches, "of a sequence")->check(CLI::Range(1, 1000000))->capture_default_str();
  sequences->add_option("--workers", options.workers, "that run batches at once")->check(CLI::Range(1, 64))->capture_default_str();
  sequences->add_option("--discount", options.discount, "how much of the unusable memory the budget leaves aside")
      ->check(CLI::Range(-10.0, 10.0))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return Measure(options, *shapes ? "shapes" : "sequences");
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) { return headroom::Main(argc, argv); }
