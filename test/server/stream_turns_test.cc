#include "server/stream_turns.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <utility>
#include <vector>

namespace headroom {
namespace {

constexpr StreamStep kNothing{};
constexpr StreamStep kRead{.read = true};
constexpr StreamStep kWrite{.write = true};
constexpr StreamStep kFinish{.finish = true};

// A request that came and has begun.
std::uint64_t Come(StreamTurns& turns) {
  const std::uint64_t number = turns.RequestCame();
  CHECK(turns.Next() == kNothing);
  turns.RequestHasBegun();
  return number;
}

TEST_CASE("answers leave one at a time, in the order of the requests", "[stream]") {
  StreamTurns turns(8);
  CHECK(turns.Next() == kRead);
  CHECK(Come(turns) == 0);
  CHECK(turns.Next() == kRead);
  CHECK(Come(turns) == 1);
  CHECK(turns.Next() == kRead);
  turns.AnswerIsThere(1);
  CHECK(turns.Next() == kNothing);
  turns.AnswerIsThere(0);
  CHECK(turns.Next() == kWrite);
  CHECK(turns.Next() == kNothing);
  turns.AnswerWasWritten();
  CHECK(turns.Next() == StreamStep{.closed = 1, .write = true});
  turns.AnswerWasWritten();
  CHECK(turns.Next() == StreamStep{.closed = 1});
}

TEST_CASE("reading stops while too many calls are open, and goes on when an answer has been written", "[stream]") {
  StreamTurns turns(2);
  CHECK(turns.Next() == kRead);
  Come(turns);
  CHECK(turns.Next() == kRead);
  Come(turns);
  CHECK(turns.Next() == kNothing);
  turns.AnswerIsThere(0);
  turns.AnswerIsThere(1);
  // Being written is not written.
  CHECK(turns.Next() == kWrite);
  turns.AnswerWasWritten();
  CHECK(turns.Next() == StreamStep{.closed = 1, .write = true, .read = true});
}

TEST_CASE("a stream ends when there are no more requests and every answer has been written", "[stream]") {
  StreamTurns turns(4);
  CHECK(turns.Next() == kRead);
  Come(turns);
  CHECK(turns.Next() == kRead);
  turns.NoMoreRequests();
  CHECK(turns.Next() == kNothing);
  turns.AnswerIsThere(0);
  CHECK(turns.Next() == kWrite);
  turns.AnswerWasWritten();
  CHECK(turns.Next() == StreamStep{.closed = 1, .finish = true});
  CHECK(turns.Next() == kNothing);
}

TEST_CASE("a stream on which nothing was asked ends at once", "[stream]") {
  StreamTurns turns(4);
  CHECK(turns.Next() == kRead);
  turns.NoMoreRequests();
  CHECK(turns.Next() == kFinish);
}

TEST_CASE("a broken stream writes and reads nothing, and ends when what runs has ended", "[stream]") {
  StreamTurns turns(4);
  CHECK(turns.Next() == kRead);
  Come(turns);
  CHECK(turns.Next() == kRead);
  Come(turns);
  CHECK(turns.Next() == kRead);
  turns.AnswerIsThere(0);
  CHECK(turns.Next() == kWrite);
  turns.Break();
  CHECK(turns.Next() == kNothing);
  turns.AnswerIsThere(1);
  CHECK(turns.Next() == kNothing);
  turns.NoMoreRequests();
  CHECK(turns.Next() == kNothing);
  turns.AnswerWasWritten();
  CHECK(turns.Next() == StreamStep{.closed = 2, .finish = true});
}

TEST_CASE("a request that came as the stream broke is still answered before it ends", "[stream]") {
  StreamTurns turns(4);
  CHECK(turns.Next() == kRead);
  const std::uint64_t number = turns.RequestCame();
  turns.Break();
  CHECK(turns.Next() == kNothing);
  turns.AnswerIsThere(number);
  CHECK(turns.Next() == StreamStep{.closed = 1});
  turns.RequestHasBegun();
  CHECK(turns.Next() == kFinish);
}

// Any order of events that gRPC and the batcher may bring.
TEST_CASE("whatever happens: in order, bounded, and it ends", "[stream]") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto one_of = [&](std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random); };
  for (int round = 0; round < 2000; ++round) {
    const std::size_t most = 1 + one_of(5);
    std::size_t to_come = one_of(12);
    const bool breaks = one_of(3) == 0;
    StreamTurns turns(most);
    bool reading = false;
    bool writing = false;
    bool finished = false;
    std::uint64_t closed = 0;
    std::uint64_t came = 0;
    std::vector<std::uint64_t> unanswered;
    const auto take = [&] {
      const StreamStep step = turns.Next();
      REQUIRE_FALSE((finished && !(step == kNothing)));
      closed += step.closed;
      if (step.write) REQUIRE_FALSE(std::exchange(writing, true));
      if (step.read) REQUIRE_FALSE(std::exchange(reading, true));
      // What is being written is the oldest, and answered.
      if (step.write) REQUIRE(std::find(unanswered.begin(), unanswered.end(), closed) == unanswered.end());
      REQUIRE(came - closed <= most);
      finished = finished || step.finish;
      if (step.finish) REQUIRE((!reading && !writing && closed == came));
    };
    take();
    while (!finished) {
      std::vector<int> possible;
      if (reading) possible.push_back(0);
      if (!unanswered.empty()) possible.push_back(1);
      if (writing) possible.push_back(2);
      if (breaks && !turns.broken() && came > 2) possible.push_back(3);
      REQUIRE_FALSE(possible.empty());
      switch (possible[one_of(possible.size())]) {
        case 0:
          if (to_come == 0 || turns.broken()) {
            reading = false;
            turns.NoMoreRequests();
            break;
          }
          --to_come;
          unanswered.push_back(turns.RequestCame());
          REQUIRE(unanswered.back() == came++);
          reading = false;
          turns.RequestHasBegun();
          break;
        case 1: {
          const auto which = unanswered.begin() + static_cast<std::ptrdiff_t>(one_of(unanswered.size()));
          const std::uint64_t number = *which;
          unanswered.erase(which);
          turns.AnswerIsThere(number);
          break;
        }
        case 2:
          writing = false;
          turns.AnswerWasWritten();
          break;
        default: turns.Break();
      }
      take();
    }
    REQUIRE((turns.broken() || to_come == 0));
  }
}

}  // namespace
}  // namespace headroom
