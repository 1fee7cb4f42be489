#include "server/model_statistics.h"

#include <absl/strings/str_cat.h>

namespace headroom {
namespace {

void Set(inference::StatisticDuration* to, std::int64_t count, Duration time) {
  to->set_count(static_cast<std::uint64_t>(count));
  to->set_ns(static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count()));
}

}  // namespace

inference::ModelStatistics StatisticsOf(const std::string& model, std::int64_t version, const ModelTotals& totals,
                                        std::optional<std::int64_t> last_answer_ms) {
  inference::ModelStatistics statistics;
  statistics.set_name(model);
  statistics.set_version(absl::StrCat(version));
  statistics.set_last_inference(static_cast<std::uint64_t>(last_answer_ms.value_or(0)));
  statistics.set_inference_count(static_cast<std::uint64_t>(totals.rows));
  statistics.set_execution_count(static_cast<std::uint64_t>(totals.batches));
  auto* const spent = statistics.mutable_inference_stats();
  const std::int64_t succeeded = totals.succeeded.count;
  Set(spent->mutable_success(), succeeded, totals.succeeded.time);
  Set(spent->mutable_fail(), totals.failed.count, totals.failed.time);
  Set(spent->mutable_queue(), succeeded, totals.queue);
  Set(spent->mutable_compute_input(), succeeded, totals.compute_input);
  Set(spent->mutable_compute_infer(), succeeded, totals.compute_infer);
  Set(spent->mutable_compute_output(), succeeded, totals.compute_output);
  for (const auto& [rows, batches] : totals.by_rows) {
    auto* const of_size = statistics.add_batch_stats();
    of_size->set_batch_size(static_cast<std::uint64_t>(rows));
    Set(of_size->mutable_compute_input(), batches.count, batches.compute_input);
    Set(of_size->mutable_compute_infer(), batches.count, batches.compute_infer);
    Set(of_size->mutable_compute_output(), batches.count, batches.compute_output);
  }
  return statistics;
}

}  // namespace headroom
