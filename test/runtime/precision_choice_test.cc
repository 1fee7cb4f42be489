#include "runtime/precision_choice.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "test/fakes/host_tensors.h"

namespace headroom {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

ModelSpec SpecWith(const std::vector<OutputSpec>& outputs) {
  ModelSpec spec;
  spec.max_batch_rows = 8;
  spec.outputs = outputs;
  return spec;
}

TEST_CASE("the error of answers is the least cosine of a row and the largest difference", "[precision]") {
  struct Case {
    const char* what;
    std::vector<double> reference;
    std::vector<double> candidate;
    double cosine;
    double error;
    const char* broken;
  };
  // Two rows of two.
  const std::vector<Case> cases = {
      {"the same", {1, 2, 3, 4}, {1, 2, 3, 4}, 1, 0, ""},
      {"twice as long is no other direction", {1, 2, 3, 4}, {1, 2, 6, 8}, 1, 4, ""},
      {"a right angle in one row", {1, 0, 3, 4}, {0, 1, 3, 4}, 0, 1, ""},
      {"the other way round", {1, 0, 3, 4}, {1, 0, -3, -4}, -1, 8, ""},
      {"nothing in both", {0, 0, 3, 4}, {0, 0, 3, 4}, 1, 0, ""},
      {"nothing in one", {0, 0, 3, 4}, {0.5, 0, 3, 4}, 0, 0.5, ""},
      {"infinite in both", {kInfinity, 1, 3, 4}, {kInfinity, 1, 3, 4}, 1, 0, ""},
      {"no number in both", {kNan, 1, 3, 4}, {kNan, 1, 3, 4}, 1, 0, ""},
      {"infinite in one", {1, 1, 3, 4}, {1, kInfinity, 3, 4}, 1, 0, "output 'y' is inf where it was 1"},
      {"no number in one", {1, 1, 3, 4}, {1, 1, kNan, 4}, 1, 0, "output 'y' is nan where it was 3"},
  };
  const ModelSpec spec = SpecWith({{"y", DataType::kFp32, {2}}});
  for (const Case& c : cases) {
    CAPTURE(c.what);
    std::vector<HostTensor> reference;
    std::vector<HostTensor> candidate;
    reference.push_back(TensorOf(DataType::kFp32, {2, 2}, c.reference));
    candidate.push_back(TensorOf(DataType::kFp32, {2, 2}, c.candidate));
    const AnswerError error = CompareAnswers(spec, 2, {}, reference, candidate);
    CHECK(error.min_cosine == Approx(c.cosine).margin(1e-9));
    CHECK(error.max_error == Approx(c.error));
    CHECK(error.broken == c.broken);
  }
}

TEST_CASE("what lies beyond a row's true length is not compared", "[precision]") {
  // [2 rows, 2 heads, length 3, width 1]: the second row is one long.
  const ModelSpec spec = SpecWith({{"y", DataType::kFp32, {2, kSequenceAxis, 1}}});
  std::vector<HostTensor> reference;
  std::vector<HostTensor> candidate;
  reference.push_back(TensorOf(DataType::kFp32, {2, 2, 3, 1}, {1, 1, 1, 1, 1, 1, /**/ 1, 1, 1, 1, 1, 1}));
  candidate.push_back(TensorOf(DataType::kFp32, {2, 2, 3, 1}, {1, 1, 1, 1, 1, 1, /**/ 1, 9, kNan, 1, 9, 9}));
  const std::vector<std::int64_t> lengths = {3, 1};
  const AnswerError error = CompareAnswers(spec, 2, lengths, reference, candidate);
  CHECK(error.broken.empty());
  CHECK(error.max_error == 0);
  CHECK(error.min_cosine == Approx(1));
  CHECK_FALSE(CompareAnswers(spec, 2, {}, reference, candidate).broken.empty());
}

TEST_CASE("a label that is another is told apart from an error that is small", "[precision]") {
  const ModelSpec spec = SpecWith({{"score", DataType::kFp32, {1}}, {"label", DataType::kInt64, {1}}});
  std::vector<HostTensor> reference;
  std::vector<HostTensor> candidate;
  for (std::vector<HostTensor>* outputs : {&reference, &candidate}) {
    outputs->push_back(TensorOf(DataType::kFp32, {1, 1}, {0.5}));
    outputs->push_back(TensorOf(DataType::kInt64, {1, 1}, {outputs == &candidate ? 4.0 : 3.0}));
  }
  CHECK(CompareAnswers(spec, 1, {}, reference, candidate).broken == "output 'label' has other whole numbers");
  CHECK(CompareAnswers(spec, 1, {}, reference, reference).broken.empty());
}

TEST_CASE("a bound is kept up to itself, and its breach is told with the figures", "[precision]") {
  struct Case {
    PrecisionSpec bounds;
    AnswerError error;
    bool kept;
  };
  const PrecisionSpec cosine{.wanted = Precision::kBf16, .min_cosine = 0.999, .max_error = {}};
  const PrecisionSpec error{.wanted = Precision::kBf16, .min_cosine = {}, .max_error = 0.01};
  const PrecisionSpec both{.wanted = Precision::kBf16, .min_cosine = 0.999, .max_error = 0.01};
  const PrecisionSpec none{.wanted = Precision::kBf16, .min_cosine = {}, .max_error = {}};
  const std::vector<Case> cases = {
      {cosine, {0.999, 5, ""}, true},
      {cosine, {0.9989, 0, ""}, false},
      {error, {0.5, 0.01, ""}, true},
      {error, {1, 0.011, ""}, false},
      {both, {0.9995, 0.005, ""}, true},
      {both, {0.99, 0.005, ""}, false},
      {both, {0.9995, 0.5, ""}, false},
      {none, {-1, 1e9, ""}, true},
      {none, {1, 0, "output 'y' is nan where it was 1"}, false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.error.min_cosine, c.error.max_error, c.error.broken);
    CHECK(CheckBounds(c.bounds, Precision::kBf16, c.error).ok() == c.kept);
  }
  const absl::Status beyond = CheckBounds(both, Precision::kBf16, {0.875, 0.25, ""});
  CHECK(beyond.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(beyond.message()) ==
        "in BF16 its answers are further from those in FP32 than its configuration allows (precision: min_cosine 0.999, max_error "
        "0.01): the least cosine is 0.875, the largest error 0.25");
}

TEST_CASE("the fastest that can be used is taken, where it is worth it", "[precision]") {
  const absl::Status no = absl::FailedPreconditionError("beyond a bound");
  const auto trial = [](Precision precision, double speedup, const absl::Status& usable = absl::OkStatus()) {
    return PrecisionTrial{precision, {}, speedup, usable};
  };
  using P = Precision;
  struct Case {
    const char* what;
    std::vector<PrecisionTrial> trials;
    Precision chosen;
  };
  const std::vector<Case> cases = {
      {"nothing was tried", {}, P::kFp32},
      {"the fastest", {trial(P::kBf16, 1.8), trial(P::kAutocast, 1.6), trial(P::kFp16, 0.3)}, P::kBf16},
      {"the fastest comes later", {trial(P::kBf16, 1.2), trial(P::kAutocast, 1.6)}, P::kAutocast},
      {"the fastest is beyond a bound", {trial(P::kBf16, 2.1, no), trial(P::kAutocast, 1.6)}, P::kAutocast},
      {"none can be used", {trial(P::kBf16, 2.1, no), trial(P::kAutocast, 1.6, no)}, P::kFp32},
      {"none gains", {trial(P::kBf16, 0.7), trial(P::kAutocast, 1.0)}, P::kFp32},
      {"what it gains is not worth it", {trial(P::kBf16, 1.04)}, P::kFp32},
      {"what it gains is just worth it", {trial(P::kBf16, 1.05)}, P::kBf16},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    CHECK(FastestUsable(c.trials) == c.chosen);
  }
}

TEST_CASE("loading takes a copy more where there is something to convert", "[precision]") {
  CHECK(WeightCopies({}) == 1);
  CHECK(WeightCopies({.wanted = Precision::kBf16, .min_cosine = {}, .max_error = {}}) == 1.5);
  CHECK(WeightCopies({.automatic = true, .min_cosine = 0.99, .max_error = {}}) == 1.5);
}

}  // namespace
}  // namespace headroom
