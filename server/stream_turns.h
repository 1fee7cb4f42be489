// What may happen next on a stream of calls: answers leave in the order of the requests, and reading stops while too many are open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom {

// What is to be done now. It counts as under way from the moment that it is told.
struct StreamStep {
  std::size_t closed = 0;  // so many calls, the oldest, are over: their answers have been written, or nobody wants them
  bool write = false;      // the answer of the oldest call that is left
  bool read = false;
  bool finish = false;  // nothing happens after that

  friend bool operator==(const StreamStep&, const StreamStep&) = default;
};

// One read and one write at most are under way at a time. A call is *open* from its request's arrival until its answer has been
// written, so that a client which does not read its answers holds no more than `most_open` of them. Pure; not thread-safe.
class StreamTurns {
 public:
  // At least 1.
  explicit StreamTurns(std::size_t most_open) : answered_(most_open) {}

  // The read under way brought a request, whose number, from 0 on, is returned; the next is not read before it has begun.
  std::uint64_t RequestCame();
  void RequestHasBegun();
  // The read under way brought the news that there will be no more.
  void NoMoreRequests();
  // The answer to request `number` is there. Once for each.
  void AnswerIsThere(std::uint64_t number);
  // The write under way ended.
  void AnswerWasWritten();
  // Nobody reads answers any more: none is written, and no request read.
  void Break();

  bool broken() const { return broken_; }

  // To be asked after these, and once to begin.
  StreamStep Next();

 private:
  bool OldestIsAnswered() const { return oldest_ < came_ && answered_[oldest_ % answered_.size()]; }

  // Of the calls from oldest_ to came_ - 1, which are open; a ring, made once, so that nothing here can run out of memory.
  std::vector<bool> answered_;
  std::uint64_t oldest_ = 0;
  std::uint64_t came_ = 0;
  bool reading_ = false;  // or beginning what was read
  bool writing_ = false;
  bool written_ = false;  // the oldest, and nothing has been made of that yet
  bool no_more_ = false;
  bool broken_ = false;
  bool finished_ = false;
};

}  // namespace headroom
