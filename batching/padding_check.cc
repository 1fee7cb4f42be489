#include "batching/padding_check.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include "base/status_macros.h"
#include "batching/collator.h"
#include "runtime/output_check.h"
#include "runtime/sample_batch.h"

namespace headroom {
namespace {

// The inputs of one row, and the answers that two ways of running it gave.
struct TriedRow {
  std::int64_t length = 0;
  std::vector<HostTensor> inputs;
  std::vector<std::string> alone;
  std::vector<std::string> padded;
};

HostTensor SampleRow(const InputSpec& input, std::int64_t length, std::mt19937_64& generator) {
  HostTensor tensor;
  tensor.type = input.type;
  for (const std::int64_t dim : input.dims) tensor.shape.push_back(dim == kSequenceAxis ? length : dim);
  tensor.data = AllocateHost(tensor.size());
  FillWithSamples(input, tensor, generator);
  return tensor;
}

class Trial {
 public:
  Trial(std::shared_ptr<const ModelSpec> spec, const LoadedModel& model, Device& device)
      : spec_(std::move(spec)), model_(model), device_(device) {}

  // Runs the rows as one batch padded to `length` and puts their answers where `answers` points.
  absl::Status Run(const std::vector<TriedRow*>& rows, std::int64_t length, std::vector<std::string> TriedRow::*answers) {
    std::vector<QueuedRow> queued;
    for (TriedRow* row : rows) {
      Request::Parts parts;
      parts.spec = spec_;
      for (const HostTensor& input : row->inputs) parts.inputs.push_back({input.data.get()});
      parts.client_length = row->length;
      parts.rows = {{row->length, {length, row->length, false}}};
      parts.done = [row, answers](Reply reply) { row->*answers = std::move(reply.outputs); };
      queued.push_back({std::make_shared<Request>(std::move(parts)), 0});
    }
    absl::Status ran = RunQueued(queued, {static_cast<std::int64_t>(rows.size()), length});
    for (const QueuedRow& row : queued) {
      ran.ok() ? row.request->RowSucceeded({}) : row.request->RowFailed(ran, Outcome::kFailed);
    }
    return ran;
  }

 private:
  absl::Status RunQueued(std::span<const QueuedRow> rows, const BatchShape& shape) {
    const PaddedBatch batch = Collate(*spec_, rows, shape, device_);
    const RunResult result = device_.Run(model_, batch);
    if (std::get_if<OutOfMemory>(&result) != nullptr) return absl::ResourceExhaustedError("no memory for the padding check");
    const auto* const output = std::get_if<RunOutput>(&result);
    if (output == nullptr) return absl::InternalError("a run for the padding check failed");
    RETURN_IF_ERROR(CheckOutputs(*spec_, shape, output->outputs));
    Scatter(*spec_, rows, shape, output->outputs);
    return absl::OkStatus();
  }

  const std::shared_ptr<const ModelSpec> spec_;
  const LoadedModel& model_;
  Device& device_;
};

// Float noise: sums taken in another order. Half precision has 8 to 11 bits.
double Tolerance(DataType type, double value) {
  if (!IsFloatingPoint(type)) return 0;
  const bool half = type == DataType::kFp16 || type == DataType::kBf16;
  return (half ? 3e-2 : 1e-3) * std::max(1.0, std::abs(value));
}

absl::Status CompareWays(const ModelSpec& spec, const TriedRow& row, std::int64_t length, double noise) {
  for (std::size_t i = 0; i < spec.outputs.size(); ++i) {
    const OutputSpec& output = spec.outputs[i];
    const auto width = static_cast<std::size_t>(SizeOf(output.type));
    for (std::size_t at = 0; at < row.alone[i].size(); at += width) {
      const double alone = LoadElement(output.type, reinterpret_cast<const std::byte*>(row.alone[i].data()) + at);
      const double padded = LoadElement(output.type, reinterpret_cast<const std::byte*>(row.padded[i].data()) + at);
      if (alone == padded || (std::isnan(alone) && std::isnan(padded))) continue;
      if (std::abs(alone - padded) <= Tolerance(output.type, alone) + noise) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("padding changes its answers, so it seems to ignore its mask: output '", output.name,
                       "' of a row of length ", row.length, " is ", alone, " alone and ", padded, " padded to ", length,
                       ". Mend the model, or set sequence { padding_check: WARN } or OFF where that is wanted"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPadding(const std::shared_ptr<const ModelSpec>& spec, const BucketLadder& ladder, const LoadedModel& model,
                          Device& device, double noise) {
  if (!spec->variable_length() || !ladder.mixes_lengths() || !device.computes()) return absl::OkStatus();
  constexpr std::uint64_t kSeed = 20240501;
  std::mt19937_64 generator(kSeed);
  const std::int64_t bucket = spec->sequence.buckets.front();
  std::vector<TriedRow> rows(3);
  const std::int64_t lengths[] = {std::max<std::int64_t>(1, bucket / 8), bucket / 2 + 1, bucket};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].length = std::min(lengths[i], bucket);
    for (const InputSpec& input : spec->inputs) rows[i].inputs.push_back(SampleRow(input, rows[i].length, generator));
  }

  Trial trial(spec, model, device);
  std::vector<TriedRow*> all;
  for (TriedRow& row : rows) {
    RETURN_IF_ERROR(trial.Run({&row}, row.length, &TriedRow::alone));
    all.push_back(&row);
  }
  absl::Status padded = absl::ResourceExhaustedError("not tried");
  if (spec->largest_batch() >= static_cast<std::int64_t>(all.size())) padded = trial.Run(all, bucket, &TriedRow::padded);
  if (absl::IsResourceExhausted(padded)) {
    // Padding can be judged one row at a time, too.
    for (TriedRow* row : all) RETURN_IF_ERROR(trial.Run({row}, bucket, &TriedRow::padded));
  } else if (!padded.ok()) {
    return padded;
  }
  for (const TriedRow& row : rows) RETURN_IF_ERROR(CompareWays(*spec, row, bucket, noise));
  return absl::OkStatus();
}

}  // namespace headroom
