// Estimates against what batches take.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <set>

#include "runtime/sample_batch.h"
#include "test/gpu/checks.h"

namespace headroom {
namespace {

constexpr std::uint64_t kSampleSeed = 3;  // another than calibration's
constexpr double kMedianError = 0.01;
constexpr double kTailError = 0.05;

// Shapes that the model may be asked to run and that its calibration has not measured.
class UnseenShapes {
 public:
  UnseenShapes(const CheckedModel& model, Bytes budget, std::uint64_t seed) : model_(model), budget_(budget), random_(seed) {
    for (const LengthCurve& curve : model.calibration.curves) {
      for (const Measurement& point : curve.points) measured_.insert({point.rows, curve.length});
    }
  }

  // Nothing after many tries in vain.
  std::optional<BatchShape> Next() {
    std::uniform_int_distribution<std::int64_t> length(1, model_.ladder.longest());
    std::uniform_int_distribution<std::int64_t> rows(1, model_.spec->largest_batch());
    for (int i = 0; i < 1000; ++i) {
      const std::int64_t drawn = length(random_);
      const std::int64_t bucket = model_.ladder.Place(drawn)->bucket;
      const BatchShape shape{rows(random_), model_.ladder.PaddedLength(bucket, drawn)};
      if (model_.Needs(shape) <= budget_ && measured_.insert(shape).second) return shape;
    }
    return std::nullopt;
  }

 private:
  const CheckedModel& model_;
  const Bytes budget_;
  std::mt19937_64 random_;
  std::set<BatchShape> measured_;  // or drawn before
};

double Ratio(Bytes a, Bytes b) { return static_cast<double>(a.count) / static_cast<double>(std::max<std::int64_t>(1, b.count)); }

// What came of the shapes of one model.
struct Errors {
  std::vector<double> plain;    // |estimated − actual| ÷ actual, of the bytes in tensors
  std::vector<double> tensors;  // the same without what an estimate adds for rounding, which for a shape of some KiB is much
  std::vector<double> over;     // bytes that the allocator took less than estimated
  std::int64_t under = 0;       // it took more than estimate and margin
  Bytes most_under{0};          // by how much
  double worst = 0;             // the largest actual ÷ estimated of what it took
};

void Compare(CheckRun& run, const CheckedModel& model, const BatchShape& shape, Errors& errors, Verdict& verdict) {
  const RunResult result =
      run.device().Probe(*model.loaded, SampleBatch(*model.spec, shape, run.device(), kSampleSeed), run.budget().idle_budget());
  const auto* output = std::get_if<RunOutput>(&result);
  const std::string name = absl::StrCat(model.spec->name, " ", shape.rows, " x ", shape.length);
  if (output == nullptr || !output->peak) {
    verdict.Require(false, absl::StrCat(name, ": ", output == nullptr ? FailureOf(result) : "no peak"));
    return;
  }
  const Bytes estimated = model.estimator.Peak(shape).value_or(Bytes{0});
  const Bytes in_tensors = *output->tensor_peak();
  const Bytes off{std::abs((model.tensor_estimator.Peak(shape).value_or(Bytes{0}) - in_tensors).count)};
  errors.plain.push_back(Ratio(off, in_tensors));
  errors.tensors.push_back(Ratio(std::max(Bytes{0}, off - CalibratedEstimator::kBlocks.between_points), in_tensors));
  errors.over.push_back(static_cast<double>((estimated - *output->peak).count));
  errors.worst = std::max(errors.worst, Ratio(*output->peak, estimated));
  if (*output->peak <= model.Needs(shape)) return;
  ++errors.under;
  errors.most_under = std::max(errors.most_under, *output->peak - model.Needs(shape));
  PrintInfo(absl::StrCat("under-estimated  ", name, ": estimated ", ToString(estimated), ", took ", ToString(*output->peak)));
}

std::string Figures(const std::string& name, const Errors& errors) {
  const auto bytes = [](double count) { return ToString(Bytes{static_cast<std::int64_t>(count)}); };
  return absl::StrFormat(
      "%s: %d unseen shapes, bytes in tensors off by p50 %s p99 %s (%s and %s with the 4 KiB for rounding), bytes held below the "
      "estimate by p50 %s, most held %.3f of the estimate, beyond the margin %d by up to %s",
      name, errors.plain.size(), Percent(Quantile(errors.tensors, 0.5)), Percent(Quantile(errors.tensors, 0.99)),
      Percent(Quantile(errors.plain, 0.5)), Percent(Quantile(errors.plain, 0.99)), bytes(Quantile(errors.over, 0.5)), errors.worst,
      errors.under, ToString(errors.most_under));
}

}  // namespace

void CheckCalibration(CheckRun& run, Verdict& verdict) {
  if (!verdict.RequireOk(run.Prepare(), "preparing")) return;
  verdict.Saw(run.calibrated());
  const TimePoint end = After(RealClock().Now(), run.options().time);
  for (const CheckedModel* model : {&run.encoder(), &run.attention()}) {
    // The same shapes on every run, and half of the time for each model.
    UnseenShapes shapes(*model, run.budget().idle_budget(), run.options().seed);
    const Duration share = (end - RealClock().Now()) / (model == &run.encoder() ? 2 : 1);
    const TimePoint model_end = After(RealClock().Now(), share);
    Errors errors;
    for (std::int64_t i = 0; i < run.options().shapes && RealClock().Now() < model_end; ++i) {
      const auto shape = shapes.Next();
      if (!shape) break;
      Compare(run, *model, *shape, errors, verdict);
    }
    const auto& name = model->spec->name;
    verdict.Saw(Figures(name, errors));
    verdict.Require(!errors.plain.empty(), absl::StrCat(name, ": no shape was compared"));
    verdict.Require(errors.under == 0, absl::StrCat(name, ": under-estimates"));
    verdict.Require(Quantile(errors.tensors, 0.5) <= kMedianError, absl::StrCat(name, ": p50 over ", Percent(kMedianError)));
    verdict.Require(Quantile(errors.tensors, 0.99) <= kTailError, absl::StrCat(name, ": p99 over ", Percent(kTailError)));
  }
  const DeviceMemory& rest = run.at_rest();
  PrintFact("total", rest.total);
  PrintFact("free_at_rest", rest.free);
  PrintFact("held_at_rest", rest.held);
  PrintFact("allocated_at_rest", rest.allocated);
  const BatchShape largest{run.options().max_rows, run.options().longest};
  PrintFact("largest_tensors", run.encoder().tensor_estimator.Peak(largest).value_or(Bytes{0}));
  PrintFact("two_longest_rows", run.encoder().Needs({2, run.options().longest}));
}

void CheckPeaks(CheckRun& run, Verdict& verdict) {
  if (!verdict.RequireOk(run.Prepare(), "preparing")) return;
  std::int64_t shapes = 0;
  // Weights and workspaces: a shape of no rows.
  const DeviceMemory& rest = run.at_rest();
  std::printf("peak at-rest 0 0 %ld %ld %ld\n", rest.allocated.count, rest.held.count, rest.allocated.count);
  for (const CheckedModel* model : {&run.encoder(), &run.attention()}) {
    for (const std::int64_t length : model->spec->sequence.buckets) {
      for (std::int64_t rows = 1; rows <= run.options().max_rows; rows *= 2) {
        const BatchShape shape{rows, length};
        if (model->Needs(shape) > run.budget().idle_budget()) continue;
        const PaddedBatch batch = SampleBatch(*model->spec, shape, run.device(), kSampleSeed);
        const RunResult probed = run.device().Probe(*model->loaded, batch, run.budget().idle_budget());
        run.device().EmptyCache();
        const RunResult ran = run.device().Run(*model->loaded, batch);
        const auto* probe = std::get_if<RunOutput>(&probed);
        const auto* output = std::get_if<RunOutput>(&ran);
        if (probe == nullptr || output == nullptr || !probe->peak || !output->peak) {
          verdict.Require(false,
                          absl::StrCat(model->spec->name, " ", rows, " x ", length, ": ", FailureOf(probed), FailureOf(ran)));
          continue;
        }
        std::printf("peak %s %ld %ld %ld %ld %ld\n", model->spec->name.c_str(), rows, length, output->peak->count,
                    probe->peak->count, probe->tensor_peak()->count);
        ++shapes;
      }
    }
  }
  verdict.Saw(absl::StrCat(shapes, " shapes measured"));
}

}  // namespace headroom
