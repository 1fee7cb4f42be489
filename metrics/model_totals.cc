#include "metrics/model_totals.h"

#include <algorithm>

namespace headroom {
namespace {

// Adds `sign` times what `from` counts.
void Add(CountAndTime& to, const CountAndTime& from, int sign) {
  to.count += sign * from.count;
  to.time += sign * from.time;
}

void Add(ModelTotals& to, const ModelTotals& from, int sign) {
  to.rows += sign * from.rows;
  to.batches += sign * from.batches;
  Add(to.succeeded, from.succeeded, sign);
  Add(to.failed, from.failed, sign);
  for (std::size_t i = 0; i < kFailureReasons; ++i) to.failures.at(i) += sign * from.failures.at(i);
  to.queue += sign * from.queue;
  to.compute_input += sign * from.compute_input;
  to.compute_infer += sign * from.compute_infer;
  to.compute_output += sign * from.compute_output;
  for (const auto& [rows, batches] : from.by_rows) {
    ModelTotals::Batches& sum = to.by_rows[rows];
    sum.count += sign * batches.count;
    sum.compute_input += sign * batches.compute_input;
    sum.compute_infer += sign * batches.compute_infer;
    sum.compute_output += sign * batches.compute_output;
    if (sum.count == 0) to.by_rows.erase(rows);
  }
}

}  // namespace

const char* NameOf(FailureReason reason) {
  switch (reason) {
    case FailureReason::kRejected: return "REJECTED";
    case FailureReason::kCanceled: return "CANCELED";
    case FailureReason::kBackend: return "BACKEND";
    case FailureReason::kOther: return "OTHER";
  }
  return "";
}

ModelTotals& ModelTotals::operator+=(const ModelTotals& other) {
  Add(*this, other, 1);
  last_answer = std::max(last_answer, other.last_answer);
  return *this;
}

ModelTotals& ModelTotals::operator-=(const ModelTotals& earlier) {
  Add(*this, earlier, -1);
  // Nothing has been answered since.
  if (last_answer == earlier.last_answer) last_answer = TimePoint{};
  return *this;
}

}  // namespace headroom
