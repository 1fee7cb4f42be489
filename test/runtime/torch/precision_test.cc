#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "runtime/precision_choice.h"
#include "runtime/sample_batch.h"
#include "runtime/torch/torch_device.h"
#include "test/runtime/torch/scripted_model.h"

namespace headroom {
namespace {

constexpr std::int64_t kWidth = 256;

// One FP32 input [rows, kWidth] of values in [0, 1], an FP32 output of the same.
ModelSpec SpecIn(PrecisionSpec precision) {
  ModelSpec spec = SpecOf({"x"}, {"y"});
  spec.inputs[0].dims = {kWidth};
  spec.outputs[0].dims = {kWidth};
  spec.precision = precision;
  return spec;
}

PrecisionSpec Wanted(Precision precision, std::optional<double> min_cosine = {}, std::optional<double> max_error = {}) {
  return {.wanted = precision, .min_cosine = min_cosine, .max_error = max_error};
}

const Weights kWeights = {{"w", kWidth* kWidth}};
constexpr const char* kProduct = "def forward(self, x):\n    return torch.linear(x, self.w.reshape(256, 256)) * 0.001\n";
// The sums are some 8000, of which neither half has the last digit: one is lost.
constexpr const char* kDifference =
    "def forward(self, x):\n    y = torch.linear(x, self.w.reshape(256, 256)) * 64.0\n    return (y + 1.0) - y\n";

// Loads in kFp32, with what it takes to convert from it.
std::shared_ptr<const LoadedModel> LoadIn(Device& device, const ModelSpec& spec, const char* source = kProduct) {
  return LoadSource(device, spec, source, kWeights);
}

absl::StatusOr<SettledModel> Settle(Device& device, const ModelSpec& spec, const char* source = kProduct) {
  const SoloRun run = [&](const LoadedModel& model, const PaddedBatch& batch) { return device.Run(model, batch); };
  return SettlePrecision(LoadIn(device, spec, source), spec, device, {{2, 0}}, run, {});
}

std::vector<float> AnswersOf(Device& device, const LoadedModel& model, const ModelSpec& spec) {
  return FloatsOf(Succeed(device.Run(model, SampleBatch(spec, {3, 0}, device, /*seed=*/7))).outputs[0]);
}

TEST_CASE("a model converted keeps the types of the wire and answers nearly the same", "[torch][precision]") {
  const auto device = CpuWithLimit();
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16, Precision::kAutocast}) {
    CAPTURE(NameOf(precision));
    const ModelSpec spec = SpecIn(Wanted(Precision::kBf16));
    const auto own = LoadIn(*device, spec);
    const auto converted = device->Convert(*own, precision);
    REQUIRE(converted.ok());
    CHECK((*converted)->precision() == precision);
    const std::vector<float> expected = AnswersOf(*device, *own, spec);
    const std::vector<float> found = AnswersOf(*device, **converted, spec);
    REQUIRE(found.size() == expected.size());
    double largest = 0;
    for (std::size_t i = 0; i < found.size(); ++i) largest = std::max(largest, std::abs(double{expected[i]} - found[i]));
    CHECK(largest < 1e-3);
    // It did compute in another precision; and its source does not, before and after.
    CHECK((largest == 0) == (precision == Precision::kFp32));
    CHECK(AnswersOf(*device, *own, spec) == expected);
  }
}

TEST_CASE("a model that computes in half precision holds half of the memory, once the other is gone", "[torch][precision]") {
  const auto device = CpuWithLimit();
  const Bytes before = device->Memory()->allocated;
  const Bytes weights{kWidth * kWidth * 4};
  struct Case {
    Precision precision;
    Bytes kept;
  };
  // autocast has the reshaped weight folded into one constant, and that converted.
  const std::vector<Case> cases = {
      {Precision::kFp32, weights}, {Precision::kBf16, Bytes{weights.count / 2}}, {Precision::kAutocast, Bytes{weights.count / 2}}};
  for (const Case& c : cases) {
    CAPTURE(NameOf(c.precision));
    {
      // kBf16 wanted: FP32 itself would not be converted at all.
      const ModelSpec spec = SpecIn(Wanted(Precision::kBf16));
      auto own = LoadIn(*device, spec);
      auto converted = device->Convert(*own, c.precision);
      REQUIRE(converted.ok());
      AnswersOf(*device, **converted, spec);
      own.reset();
      const Bytes held = device->Memory()->allocated - before;
      CHECK(held >= c.kept);
      CHECK(held <= c.kept + KiB(8));
      AnswersOf(*device, **converted, spec);
    }
    CHECK(device->Memory()->allocated == before);
  }
}

TEST_CASE("while a model is converted there are a half more of it, and no room for that is said", "[torch][precision]") {
  const auto device = CpuWithLimit();
  const ModelSpec spec = SpecIn(Wanted(Precision::kBf16));
  const auto own = LoadIn(*device, spec);
  AnswersOf(*device, *own, spec);
  const Bytes held = device->Memory()->allocated;
  CpuWithLimit(held + KiB(64));
  const auto converted = device->Convert(*own, Precision::kBf16);
  CHECK(converted.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(device->Memory()->allocated == held);
  CpuWithLimit(held + Bytes{kWidth * kWidth * 2} + KiB(4));
  CHECK(device->Convert(*own, Precision::kBf16).ok());
  CpuWithLimit();
}

TEST_CASE("a module that was not loaded to be converted is not", "[torch][precision]") {
  const auto device = CpuWithLimit();
  const auto own = LoadIn(*device, SpecIn({}));
  CHECK(device->Convert(*own, Precision::kBf16).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("a bound that is kept serves, one that is not refuses", "[torch][precision]") {
  const auto device = CpuWithLimit();
  const auto kept = Settle(*device, SpecIn(Wanted(Precision::kBf16, 0.999)));
  INFO(kept.status().ToString());
  REQUIRE(kept.ok());
  CHECK(kept->loaded->precision() == Precision::kBf16);
  CHECK(kept->chosen.error.min_cosine >= 0.999);
  CHECK(kept->chosen.error.min_cosine <= 1);
  CHECK(kept->chosen.error.max_error > 0);

  for (const Precision precision : {Precision::kBf16, Precision::kAutocast}) {
    CAPTURE(NameOf(precision));
    const auto refused = Settle(*device, SpecIn(Wanted(precision, {}, 1e-9)));
    CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(absl::StrContains(std::string(refused.status().message()), "max_error 1e-09"));
  }
  // Without a bound it is served, and how far it is off is told.
  const auto unbounded = Settle(*device, SpecIn(Wanted(Precision::kBf16)), kDifference);
  REQUIRE(unbounded.ok());
  CHECK(unbounded->chosen.error.max_error > 0.01);
}

TEST_CASE("the automatic choice keeps its bound, and is the model's own where nothing does", "[torch][precision]") {
  const auto device = CpuWithLimit();
  const auto strict = Settle(*device, SpecIn({.automatic = true, .min_cosine = {}, .max_error = 0}));
  REQUIRE(strict.ok());
  CHECK(strict->loaded->precision() == Precision::kFp32);
  REQUIRE(strict->trials.size() == 3);
  for (const PrecisionTrial& trial : strict->trials) {
    CAPTURE(NameOf(trial.precision), trial.error.max_error, trial.error.broken);
    CHECK_FALSE(trial.usable.ok());
  }

  // Which one is fastest is the machine's; that it is one of those that keep the bound is ours.
  const auto loose = Settle(*device, SpecIn({.automatic = true, .min_cosine = 0.5, .max_error = {}}));
  REQUIRE(loose.ok());
  CHECK(loose->loaded->precision() == loose->chosen.precision);
  CHECK(loose->chosen.precision == FastestUsable(loose->trials));
}

TEST_CASE("a module that cannot run in half precision is refused, and passed by where the choice is automatic",
          "[torch][precision]") {
  const auto device = CpuWithLimit();
  // The dtype that the code names stays what it is.
  constexpr const char* kMixed = "def forward(self, x):\n    return torch.mm(x.to(6), self.w.reshape(256, 256))\n";
  const auto refused = Settle(*device, SpecIn(Wanted(Precision::kBf16)), kMixed);
  CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(absl::StartsWith(std::string(refused.status().message()), "it does not run in BF16 on cpu: "));

  const auto automatic = Settle(*device, SpecIn({.automatic = true, .min_cosine = 0.9, .max_error = {}}), kMixed);
  REQUIRE(automatic.ok());
  CHECK_FALSE(automatic->trials.front().usable.ok());
  const auto autocast = Settle(*device, SpecIn(Wanted(Precision::kAutocast, 0.999)), kMixed);
  INFO(autocast.status().ToString());
  CHECK(autocast.ok());
}

TEST_CASE("autocast is one run's: other models on the thread and on others compute as they did", "[torch][precision]") {
  const auto device = CpuWithLimit();
  const ModelSpec spec = SpecIn(Wanted(Precision::kAutocast));
  const auto own = LoadIn(*device, spec);
  const auto autocast = device->Convert(*own, Precision::kAutocast).value();
  const std::vector<float> expected = AnswersOf(*device, *own, spec);
  const std::vector<float> rough = AnswersOf(*device, *autocast, spec);
  REQUIRE(rough != expected);
  // First called in turns and from two threads at once: neither form may take the other's compiled plan or state.
  std::vector<std::jthread> threads;
  std::vector<int> wrong(2, 0);
  for (std::size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        if (FloatsOf(std::get<RunOutput>(device->Run(*own, SampleBatch(spec, {3, 0}, *device, 7))).outputs[0]) != expected)
          ++wrong[t];
        if (FloatsOf(std::get<RunOutput>(device->Run(*autocast, SampleBatch(spec, {3, 0}, *device, 7))).outputs[0]) != rough)
          ++wrong[t];
      }
    });
  }
  threads.clear();
  CHECK(wrong == std::vector<int>{0, 0});
}

}  // namespace
}  // namespace headroom
