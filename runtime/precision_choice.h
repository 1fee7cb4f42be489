// In which number format a model is served: what another one costs in accuracy and gains in time, tried out at load against the
// model as its file has it, and what follows from that.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace headroom {

// How far answers are from those in kFp32, over all that were compared.
struct AnswerError {
  // Of an output of one row, as a vector. Rows that are 0 in both are alike; in one only, they have nothing in common: 0.
  double min_cosine = 1;
  double max_error = 0;  // of an element, absolute
  // What no bound is about: a whole number or a truth is another, or an element is no finite number where the reference's is.
  std::string broken;

  void Add(const AnswerError& other);
};

// Compares the outputs of two runs of a batch of `rows`, both as `spec` declares them. Of a row only what is within its true length
// counts, of which there is one a row; none where rows have no lengths.
AnswerError CompareAnswers(const ModelSpec& spec, std::int64_t rows, std::span<const std::int64_t> lengths,
                           const std::vector<HostTensor>& reference, const std::vector<HostTensor>& candidate);

// OK where the bounds are kept (those that there are), and nothing is broken. FAILED_PRECONDITION with the figures and the bounds.
absl::Status CheckBounds(const PrecisionSpec& bounds, Precision precision, const AnswerError& error);

// What trying a precision told.
struct PrecisionTrial {
  Precision precision = Precision::kFp32;
  AnswerError error = {};
  double speedup = 1;                      // how many times as fast as kFp32; 1 where that was not measured
  absl::Status usable = absl::OkStatus();  // or why it cannot be used: it does not run, does not fit, is beyond a bound
};

// The fastest of those that can be used; kFp32 where none is faster by what is worth having another one at all, 5 %.
Precision FastestUsable(std::span<const PrecisionTrial> trials);

struct SettledModel {
  std::shared_ptr<const LoadedModel> loaded;
  PrecisionTrial chosen = {};
  std::vector<PrecisionTrial> trials = {};  // all that were made, for the log
};

// One run, with the device to itself.
using SoloRun = std::function<RunResult(const LoadedModel&, const PaddedBatch&)>;

// Makes of `as_loaded` what `spec.precision` wants, and lets go of the rest: at most one converted form is held beside it at a
// time. `shapes`, ascending, are what is run in both forms to compare; those that do not fit are left out. Where the choice is
// automatic, speed is measured at the middle one with a few rows, in turns with kFp32; a form that cannot be used is no error then.
//
// FAILED_PRECONDITION: beyond a bound, or it does not run so. RESOURCE_EXHAUSTED: the converted weights do not fit beside the
// model's own. CANCELLED once `stop` is asked for. On a device that does not compute nothing can be compared, and an automatic
// choice is kFp32.
absl::StatusOr<SettledModel> SettlePrecision(std::shared_ptr<const LoadedModel> as_loaded, const ModelSpec& spec, Device& device,
                                             const std::vector<BatchShape>& shapes, const SoloRun& run,
                                             const std::stop_token& stop);

// The most that loading takes of a device for weights, as a multiple of what the file has: while a model is converted, it and half
// of it again.
double WeightCopies(const PrecisionSpec& precision);

}  // namespace headroom
