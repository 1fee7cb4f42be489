#include "server/stream_turns.h"

#include <cassert>

namespace headroom {

std::uint64_t StreamTurns::RequestCame() {
  assert(reading_ && came_ - oldest_ < answered_.size() && "a request came that was not to be read");
  answered_[came_ % answered_.size()] = false;
  return came_++;
}

void StreamTurns::RequestHasBegun() { reading_ = false; }

void StreamTurns::NoMoreRequests() {
  reading_ = false;
  no_more_ = true;
}

void StreamTurns::AnswerIsThere(std::uint64_t number) {
  assert(number >= oldest_ && number < came_ && "an answer to nothing");
  answered_[number % answered_.size()] = true;
}

void StreamTurns::AnswerWasWritten() {
  writing_ = false;
  written_ = true;
}

void StreamTurns::Break() { broken_ = true; }

StreamStep StreamTurns::Next() {
  StreamStep step;
  if (finished_) return step;
  const std::uint64_t oldest_before = oldest_;
  if (written_) ++oldest_;
  written_ = false;
  // An answer that is being written stays until that has ended, well or not.
  while (broken_ && !writing_ && OldestIsAnswered()) ++oldest_;
  step.closed = oldest_ - oldest_before;
  const std::uint64_t open = came_ - oldest_;
  const bool no_more = no_more_ || broken_;
  step.write = !broken_ && !writing_ && OldestIsAnswered();
  step.read = !no_more && !reading_ && open < answered_.size();
  step.finish = no_more && open == 0 && !reading_ && !writing_;
  writing_ = writing_ || step.write;
  reading_ = reading_ || step.read;
  finished_ = step.finish;
  return step;
}

}  // namespace headroom
