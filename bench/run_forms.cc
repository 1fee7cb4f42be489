// How fast a model runs in each precision and on how many threads, without a server: the forms take turns, so that all meet the
// same machine, and only ratios of one run are to be told.
//
//   headroom_run_forms --model build/models/minilm/1/model.pt --highest-id 30521 --width 384 --shapes 1x16,8x32,4x128,1x512

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "bench/token_model.h"
#include "runtime/precision_choice.h"
#include "runtime/sample_batch.h"
#include "runtime/torch/torch_device.h"

namespace headroom {
namespace {

struct Options {
  std::string model = "build/models/minilm/1/model.pt";
  double highest_id = 999;
  std::string output = "embedding";
  std::int64_t width = 384;
  std::vector<std::string> shapes = {"1x16", "8x32", "4x128", "1x512"};
  std::vector<int> threads = {1};
  bool fp16 = false;
  int turns = 21;
};

// A model in one precision, run on so many threads.
struct Form {
  std::shared_ptr<const LoadedModel> model;
  int threads = 1;
  std::vector<double> milliseconds;
  Bytes peak{0};
  AnswerError error;
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

absl::StatusOr<BatchShape> ShapeOf(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, 'x');
  BatchShape shape;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &shape.rows) || !absl::SimpleAtoi(parts[1], &shape.length)) {
    return absl::InvalidArgumentError(absl::StrCat("--shapes: ", text, " is not ROWSxLENGTH"));
  }
  return shape;
}

absl::StatusOr<RunOutput> RunOnce(Device& device, const Form& form, PaddedBatch& batch) {
  batch.threads = form.threads;
  RunResult result = device.Run(*form.model, batch);
  if (const auto* error = std::get_if<ModelError>(&result)) return absl::InternalError(error->text);
  auto* const output = std::get_if<RunOutput>(&result);
  if (output == nullptr) return absl::ResourceExhaustedError("out of memory");
  return std::move(*output);
}

absl::Status Measure(Device& device, const ModelSpec& spec, const BatchShape& shape, std::vector<Form> forms, int turns) {
  PaddedBatch batch = SampleBatch(spec, shape, device, /*seed=*/1);
  std::vector<HostTensor> reference;
  for (Form& form : forms) {
    for (int warm = 0; warm < 3; ++warm) {
      ASSIGN_OR_RETURN(RunOutput output, RunOnce(device, form, batch));
      form.peak = output.peak.value_or(Bytes{0});
      if (reference.empty())
        reference = std::move(output.outputs);
      else
        form.error = CompareAnswers(spec, shape.rows, {}, reference, output.outputs);
    }
  }
  for (int turn = 0; turn < turns; ++turn) {
    for (Form& form : forms) {
      ASSIGN_OR_RETURN(const RunOutput output, RunOnce(device, form, batch));
      form.milliseconds.push_back(1e3 * Seconds(output.compute));
    }
  }
  for (const Form& form : forms) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < form.milliseconds.size(); ++i) {
      ratios.push_back(forms.front().milliseconds[i] / form.milliseconds[i]);
    }
    std::printf(
        "%4ld x %4ld  %-8s %2d threads  median %8.2f ms  least %8.2f ms  %5.2f times as fast  cosine %.6f  error %.2g  peak %ld\n",
        static_cast<long>(shape.rows), static_cast<long>(shape.length), NameOf(form.model->precision()), form.threads,
        Median(form.milliseconds), *std::min_element(form.milliseconds.begin(), form.milliseconds.end()), Median(ratios),
        form.error.min_cosine, form.error.max_error, static_cast<long>(form.peak.count));
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

// A model of token ids and a mask; what it declares beside that makes no difference here.
ModelSpec SpecOf(const Options& options) {
  ModelSpec spec = TokenModel(options.highest_id, 64);
  spec.outputs = {{.name = options.output, .type = DataType::kFp32, .dims = {options.width}}};
  spec.precision.automatic = true;  // so that it can be converted
  return spec;
}

absl::Status Run(const Options& options) {
  RETURN_IF_ERROR(InitializeTorch({}));
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, MakeCpuDevice(GiB(64)));
  device->LimitHeld(GiB(1));  // as a server keeps what is free
  const ModelSpec spec = SpecOf(options);
  ASSIGN_OR_RETURN(const auto own, device->Load(options.model, spec));
  std::vector<std::shared_ptr<const LoadedModel>> models = {own};
  for (const Precision precision : {Precision::kBf16, Precision::kAutocast, Precision::kFp16}) {
    if (precision == Precision::kFp16 && !options.fp16) continue;
    ASSIGN_OR_RETURN(models.emplace_back(), device->Convert(*own, precision));
  }
  std::vector<Form> forms;
  for (const auto& in_precision : models) {
    for (const int threads : options.threads) forms.push_back({in_precision, threads, {}, {0}, {}});
  }
  for (const std::string& text : options.shapes) {
    ASSIGN_OR_RETURN(const BatchShape shape, ShapeOf(text));
    RETURN_IF_ERROR(Measure(*device, spec, shape, forms, options.turns));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::Options options;
  CLI::App app("How fast a model runs in each precision and on how many threads, in turns.");
  app.add_option("--model", options.model, "The model's file.");
  app.add_option("--highest-id", options.highest_id, "Token ids go up to this.");
  app.add_option("--output", options.output, "The name of its output.");
  app.add_option("--width", options.width, "The output's width.");
  app.add_option("--shapes", options.shapes, "ROWSxLENGTH of the batches, separated by commas.")->delimiter(',');
  app.add_option("--threads", options.threads, "Threads of a run, separated by commas.")->delimiter(',');
  app.add_flag("--fp16", options.fp16, "FP16 too, which is slow on most processors.");
  app.add_option("--turns", options.turns, "How often each form runs each shape.");
  CLI11_PARSE(app, argc, argv);
  if (const absl::Status status = headroom::Run(options); !status.ok()) {
    std::fprintf(stderr, "headroom_run_forms: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
