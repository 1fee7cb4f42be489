#include "metrics/triton_series.h"

#include "metrics/family_builder.h"

namespace headroom {

std::vector<prometheus::MetricFamily> TritonFamilies(const std::vector<VersionTotals>& versions) {
  FamilyBuilder success(Metric::kTritonSuccess);
  FamilyBuilder failure(Metric::kTritonFailure);
  FamilyBuilder count(Metric::kTritonCount);
  FamilyBuilder exec_count(Metric::kTritonExecCount);
  FamilyBuilder request_time(Metric::kTritonRequestDuration);
  FamilyBuilder queue_time(Metric::kTritonQueueDuration);
  FamilyBuilder input_time(Metric::kTritonComputeInputDuration);
  FamilyBuilder infer_time(Metric::kTritonComputeInferDuration);
  FamilyBuilder output_time(Metric::kTritonComputeOutputDuration);
  FamilyBuilder pending(Metric::kTritonPending);
  for (const VersionTotals& version : versions) {
    const ModelTotals& totals = version.totals;
    const std::vector<std::string> labels = {version.model, version.version};
    success.Add(labels, totals.succeeded.count);
    for (std::size_t i = 0; i < kFailureReasons; ++i) {
      failure.Add({version.model, version.version, NameOf(static_cast<FailureReason>(i))}, totals.failures.at(i));
    }
    count.Add(labels, totals.rows);
    exec_count.Add(labels, totals.batches);
    request_time.Add(labels, Microseconds(totals.succeeded.time));
    queue_time.Add(labels, Microseconds(totals.queue));
    input_time.Add(labels, Microseconds(totals.compute_input));
    infer_time.Add(labels, Microseconds(totals.compute_infer));
    output_time.Add(labels, Microseconds(totals.compute_output));
    if (version.pending) pending.Add(labels, *version.pending);
  }
  std::vector<prometheus::MetricFamily> families;
  for (FamilyBuilder* family :
       {&success, &failure, &count, &exec_count, &request_time, &queue_time, &input_time, &infer_time, &output_time, &pending}) {
    std::move(*family).AppendTo(families);
  }
  return families;
}

}  // namespace headroom
