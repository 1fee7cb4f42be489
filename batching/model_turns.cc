#include "batching/model_turns.h"

#include <algorithm>

namespace headroom {
namespace {

// So that a turn is a turn, though nothing is known of how long it takes.
constexpr Duration kLeastTurn = std::chrono::microseconds(1);

}  // namespace

Duration ModelTurns::StartOf(const std::string& model) const {
  MutexLock lock(mutex_);
  const auto used = used_.find(model);
  return used == used_.end() ? now_ : std::max(now_, used->second);
}

void ModelTurns::Take(const std::string& model, Duration expected) {
  MutexLock lock(mutex_);
  Duration& used = used_[model];
  now_ = std::max(now_, used);
  used = now_ + std::max(expected, kLeastTurn);
}

}  // namespace headroom
