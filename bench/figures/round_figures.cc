#include "bench/figures/round_figures.h"

#include <algorithm>

namespace headroom {

void RoundFigures::CountEnd(CallEnd end, const std::string& status, const std::string& words) {
  ++by_status[status];
  answered += end == CallEnd::kAnswered ? 1 : 0;
  refused += end == CallEnd::kRefused ? 1 : 0;
  faults += end == CallEnd::kFault ? 1 : 0;
  if (end != CallEnd::kAnswered && first_words.empty()) first_words = status + ": " + words;
}

void RoundFigures::MergeRound(const RoundFigures& other) {
  const Duration both = took + other.took;
  MergeOverlapping(other);
  took = both;
}

void RoundFigures::MergeOverlapping(const RoundFigures& other) {
  latency.Merge(other.latency);
  lag.Merge(other.lag);
  sent += other.sent;
  answered += other.answered;
  refused += other.refused;
  faults += other.faults;
  answered_tokens += other.answered_tokens;
  for (const auto& [status, count] : other.by_status) by_status[status] += count;
  if (first_words.empty()) first_words = other.first_words;
  took = std::max(took, other.took);
}

}  // namespace headroom
