#include "runtime/precision_choice.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "runtime/output_check.h"
#include "runtime/sample_batch.h"

namespace headroom {
namespace {

constexpr std::uint64_t kSeed = 20240601;
constexpr double kWorthwhile = 1.05;
// Of the speed in kFp32, by single runs on a machine that may be busy.
constexpr double kHopeless = 0.4;
// A few rows of a middling length: neither what a call costs by itself nor what only the largest batches pay for.
constexpr std::int64_t kTimedRows = 4;
// Odd, for the median; as many pairs as fit into this time, at least three.
constexpr std::size_t kMostPairs = 9;
constexpr std::size_t kLeastPairs = 3;
constexpr Duration kTimedFor = std::chrono::milliseconds(800);
// In turn, fastest first as a rule. FP16 is slow on processors without instructions for it.
constexpr std::array kCandidates = {Precision::kBf16, Precision::kAutocast, Precision::kFp16};

// Where the elements of an output lie that belong to one row: `outer` runs of `length` × `inner`.
struct RowLayout {
  std::int64_t outer = 1;
  std::int64_t length = 1;
  std::int64_t inner = 1;
  bool has_length = false;
};

RowLayout LayoutOf(const OutputSpec& output, const HostTensor& tensor, bool has_batch_dimension) {
  RowLayout layout;
  const int axis = SequenceAxisOf(output.dims);
  const std::size_t first = has_batch_dimension ? 1 : 0;
  for (std::size_t i = first; i < tensor.shape.size(); ++i) {
    const int at = static_cast<int>(i - first);
    std::int64_t& part = axis < 0 || at > axis ? layout.inner : at < axis ? layout.outer : layout.length;
    part *= tensor.shape[i];
  }
  layout.has_length = axis >= 0;
  return layout;
}

// Compares element by element what belongs to one row of one output.
class RowComparison {
 public:
  explicit RowComparison(const OutputSpec& output) : output_(output), floating_(IsFloatingPoint(output.type)) {}

  void Add(double reference, double candidate) {
    if (!floating_) {
      if (reference != candidate) error_.broken = absl::StrCat("output '", output_.name, "' has other whole numbers");
      return;
    }
    if (!std::isfinite(reference) || !std::isfinite(candidate)) {
      const bool same = reference == candidate || (std::isnan(reference) && std::isnan(candidate));
      if (!same) error_.broken = absl::StrCat("output '", output_.name, "' is ", candidate, " where it was ", reference);
      return;
    }
    error_.max_error = std::max(error_.max_error, std::abs(reference - candidate));
    dot_ += reference * candidate;
    reference_ += reference * reference;
    candidate_ += candidate * candidate;
  }

  AnswerError Result() && {
    if (reference_ > 0 && candidate_ > 0) {
      error_.min_cosine = std::min(1.0, dot_ / (std::sqrt(reference_) * std::sqrt(candidate_)));
    } else if (reference_ > 0 || candidate_ > 0) {
      error_.min_cosine = 0;
    }
    return std::move(error_);
  }

 private:
  const OutputSpec& output_;
  const bool floating_;
  AnswerError error_;
  double dot_ = 0;
  double reference_ = 0;
  double candidate_ = 0;
};

// A batch to compare on, with its rows' true lengths.
struct Sample {
  PaddedBatch batch;
  std::vector<std::int64_t> lengths;
};

// Rows of made-up values, the last one masked beyond its middle where rows may differ: what a mask does to numbers is what half
// precision is most likely to break.
Sample SampleOf(const ModelSpec& spec, const BatchShape& shape, Device& device) {
  Sample sample{SampleBatch(spec, shape, device, kSeed), {}};
  if (shape.length == 0) return sample;
  sample.lengths.assign(static_cast<std::size_t>(shape.rows), shape.length);
  const int mask = spec.mask_index();
  if (mask < 0 || shape.rows < 2 || shape.length < 2) return sample;
  sample.lengths.back() = (shape.length + 1) / 2;
  HostTensor& tensor = sample.batch.inputs[static_cast<std::size_t>(mask)];
  const std::int64_t width = SizeOf(tensor.type);
  for (std::int64_t i = sample.lengths.back(); i < shape.length; ++i) {
    StoreElement(tensor.type, 0, tensor.data.get() + ((shape.rows - 1) * shape.length + i) * width);
  }
  return sample;
}

// Why a run gave nothing; nullopt where it did.
std::optional<absl::Status> Failure(const RunResult& result) {
  if (std::holds_alternative<OutOfMemory>(result)) return absl::ResourceExhaustedError("it does not fit");
  if (const auto* error = std::get_if<ModelError>(&result)) return absl::FailedPreconditionError(error->text);
  if (const auto* lost = std::get_if<DeviceLost>(&result)) return absl::InternalError(lost->text);
  return std::nullopt;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Trials {
 public:
  Trials(const LoadedModel& reference, const ModelSpec& spec, Device& device, const SoloRun& run, const std::stop_token& stop)
      : reference_(reference), spec_(spec), device_(device), run_(run), stop_(stop) {}

  // Runs every shape in kFp32. A shape that does not fit is left out.
  absl::Status RunReference(const std::vector<BatchShape>& shapes) {
    for (const BatchShape& shape : shapes) {
      if (stop_.stop_requested()) return absl::CancelledError("the start was stopped");
      Compared compared{shape, SampleOf(spec_, shape, device_), {}};
      RunResult result = run_(reference_, compared.sample.batch);
      if (std::holds_alternative<OutOfMemory>(result)) continue;
      if (auto failure = Failure(result)) {
        return {failure->code(),
                absl::StrCat("it fails on ", shape.rows, " rows of length ", shape.length, ": ", std::string(failure->message()))};
      }
      compared.compute = std::get<RunOutput>(result).compute;
      compared.answers = std::move(std::get<RunOutput>(result).outputs);
      RETURN_IF_ERROR(CheckOutputs(spec_, shape, compared.answers));
      compared_.push_back(std::move(compared));
    }
    if (compared_.empty()) return absl::ResourceExhaustedError("no memory to compare answers in two precisions");
    return absl::OkStatus();
  }

  // Converts, compares, and measures the speed where that is wanted. What was converted is gone on return.
  absl::StatusOr<PrecisionTrial> Try(Precision precision, bool timed) {
    PrecisionTrial trial{.precision = precision};
    auto converted = device_.Convert(reference_, precision);
    if (!converted.ok()) {
      trial.usable = {converted.status().code(),
                      absl::StrCat("in ", NameOf(precision),
                                   ", beside its own weights while it is tried: ", std::string(converted.status().message()))};
      return trial;
    }
    RETURN_IF_ERROR(Compare(**converted, timed, trial));
    if (!trial.usable.ok()) return trial;
    trial.usable = CheckBounds(spec_.precision, precision, trial.error);
    if (trial.usable.ok() && timed) RETURN_IF_ERROR(Measure(**converted, trial));
    return trial;
  }

 private:
  struct Compared {
    BatchShape shape;
    Sample sample;
    std::vector<HostTensor> answers;  // in kFp32
    Duration compute{0};              // for which it ran so long
  };

  // Where speed is what it is tried for, one that is hopelessly slow is given up on before the longest shapes, which take longest.
  absl::Status Compare(const LoadedModel& model, bool timed, PrecisionTrial& trial) {
    Duration own{0};
    Duration took{0};
    for (std::size_t i = 0; i < compared_.size(); ++i) {
      const Compared& compared = compared_[i];
      if (stop_.stop_requested()) return absl::CancelledError("the start was stopped");
      RunResult result = run_(model, compared.sample.batch);
      auto failure = Failure(result);
      if (failure && absl::IsInternal(*failure)) return *failure;
      if (!failure) {
        const absl::Status checked = CheckOutputs(spec_, compared.shape, std::get<RunOutput>(result).outputs);
        if (!checked.ok()) failure = checked;
      }
      if (failure) {
        trial.usable = {failure->code(), absl::StrCat("it does not run in ", NameOf(trial.precision), " on ", device_.name(), ": ",
                                                      std::string(failure->message()))};
        return absl::OkStatus();
      }
      // The first run also pays for what a library sets up once.
      own += i == 0 ? Duration{0} : compared.compute;
      took += i == 0 ? Duration{0} : std::get<RunOutput>(result).compute;
      if (timed && i >= 2 && Seconds(own) < kHopeless * Seconds(took)) {
        trial.speedup = Seconds(own) / Seconds(took);
        trial.usable = absl::FailedPreconditionError("it is much slower than FP32 here");
        return absl::OkStatus();
      }
      trial.error.Add(CompareAnswers(spec_, compared.shape.rows, compared.sample.lengths, compared.answers,
                                     std::get<RunOutput>(result).outputs));
    }
    return absl::OkStatus();
  }

  // Pairs of a run each, so that both meet the machine in the same state.
  absl::Status Measure(const LoadedModel& model, PrecisionTrial& trial) {
    BatchShape shape = compared_[(compared_.size() - 1) / 2].shape;
    shape.rows = std::max(shape.rows, std::min(kTimedRows, spec_.largest_batch()));
    const PaddedBatch batch = SampleBatch(spec_, shape, device_, kSeed);
    const auto run_once = [&](const LoadedModel& of) -> absl::StatusOr<Duration> {
      if (stop_.stop_requested()) return absl::CancelledError("the start was stopped");
      const RunResult result = run_(of, batch);
      if (const auto failure = Failure(result)) return *failure;
      return std::get<RunOutput>(result).compute;
    };
    std::vector<double> ratios;
    Duration spent{0};
    for (std::size_t pair = 0; pair <= kMostPairs; ++pair) {
      const auto own = run_once(reference_);
      const auto other = own.ok() ? run_once(model) : own;
      if (!other.ok()) {
        if (!absl::IsResourceExhausted(other.status())) return other.status();
        trial.speedup = 1;  // what cannot be measured here gains nothing
        return absl::OkStatus();
      }
      if (pair == 0) continue;  // the first of a shape also pays for what a library sets up once
      const double ratio = Seconds(*own) / std::max(Seconds(*other), 1e-9);
      ratios.push_back(ratio);
      spent += *own + *other;
      if (ratios.size() >= kLeastPairs && ratios.size() % 2 == 1 && spent >= kTimedFor) break;
    }
    trial.speedup = Median(std::move(ratios));
    return absl::OkStatus();
  }

  const LoadedModel& reference_;
  const ModelSpec& spec_;
  Device& device_;
  const SoloRun& run_;
  const std::stop_token& stop_;
  std::vector<Compared> compared_;
};

std::string BoundsText(const PrecisionSpec& bounds) {
  std::string text;
  if (bounds.min_cosine) absl::StrAppend(&text, "min_cosine ", *bounds.min_cosine);
  if (bounds.max_error) absl::StrAppend(&text, text.empty() ? "" : ", ", "max_error ", *bounds.max_error);
  return text;
}

}  // namespace

void AnswerError::Add(const AnswerError& other) {
  min_cosine = std::min(min_cosine, other.min_cosine);
  max_error = std::max(max_error, other.max_error);
  if (broken.empty()) broken = other.broken;
}

AnswerError CompareAnswers(const ModelSpec& spec, std::int64_t rows, std::span<const std::int64_t> lengths,
                           const std::vector<HostTensor>& reference, const std::vector<HostTensor>& candidate) {
  AnswerError error;
  for (std::size_t i = 0; i < spec.outputs.size(); ++i) {
    const OutputSpec& output = spec.outputs[i];
    const RowLayout layout = LayoutOf(output, reference[i], spec.has_batch_dimension());
    const std::int64_t width = SizeOf(output.type);
    std::int64_t at = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto known = static_cast<std::size_t>(row) < lengths.size() && layout.has_length;
      const std::int64_t kept = known ? lengths[static_cast<std::size_t>(row)] : layout.length;
      RowComparison comparison(output);
      for (std::int64_t outer = 0; outer < layout.outer; ++outer, at += layout.length * layout.inner) {
        for (std::int64_t k = at; k < at + kept * layout.inner; ++k) {
          comparison.Add(LoadElement(output.type, reference[i].data.get() + k * width),
                         LoadElement(output.type, candidate[i].data.get() + k * width));
        }
      }
      error.Add(std::move(comparison).Result());
    }
  }
  return error;
}

absl::Status CheckBounds(const PrecisionSpec& bounds, Precision precision, const AnswerError& error) {
  if (!error.broken.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("in ", NameOf(precision), " it does not answer as in FP32: ", error.broken));
  }
  const bool kept = error.min_cosine >= bounds.min_cosine.value_or(-1) &&
                    error.max_error <= bounds.max_error.value_or(std::numeric_limits<double>::infinity());
  if (kept) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("in ", NameOf(precision), " its answers are further from those in FP32 than ",
                                                    "its configuration allows (precision: ", BoundsText(bounds),
                                                    "): the least cosine is ", error.min_cosine, ", the largest error ",
                                                    error.max_error));
}

Precision FastestUsable(std::span<const PrecisionTrial> trials) {
  Precision fastest = Precision::kFp32;
  double speedup = kWorthwhile;
  for (const PrecisionTrial& trial : trials) {
    if (!trial.usable.ok() || trial.speedup < speedup) continue;
    fastest = trial.precision;
    speedup = trial.speedup;
  }
  return fastest;
}

absl::StatusOr<SettledModel> SettlePrecision(std::shared_ptr<const LoadedModel> as_loaded, const ModelSpec& spec, Device& device,
                                             const std::vector<BatchShape>& shapes, const SoloRun& run,
                                             const std::stop_token& stop) {
  SettledModel settled;
  const PrecisionSpec& wanted = spec.precision;
  Precision precision = wanted.automatic ? Precision::kFp32 : wanted.wanted;
  if (wanted.converts() && device.computes()) {
    Trials trials(*as_loaded, spec, device, run, stop);
    RETURN_IF_ERROR(trials.RunReference(shapes));
    if (wanted.automatic) {
      for (const Precision candidate : kCandidates) {
        ASSIGN_OR_RETURN(settled.trials.emplace_back(), trials.Try(candidate, /*timed=*/true));
      }
      precision = FastestUsable(settled.trials);
    } else {
      ASSIGN_OR_RETURN(settled.trials.emplace_back(), trials.Try(precision, /*timed=*/false));
      RETURN_IF_ERROR(settled.trials.back().usable);
    }
  }
  settled.chosen.precision = precision;
  for (const PrecisionTrial& trial : settled.trials) {
    if (trial.precision == precision) settled.chosen = trial;
  }
  // Also where it stays as it was: what Load has kept to convert from goes.
  if (!wanted.converts()) {
    settled.loaded = std::move(as_loaded);
  } else {
    ASSIGN_OR_RETURN(settled.loaded, device.Convert(*as_loaded, precision));
  }
  return settled;
}

double WeightCopies(const PrecisionSpec& precision) { return precision.converts() ? 1.5 : 1; }

}  // namespace headroom
