#include "batching/deadline_timer.h"

#include <catch2/catch.hpp>
#include <latch>
#include <thread>

#include "test/fakes/toy_serving.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;

ToyRequest AskUntil(ToyServing& serving, const ServedModel& model, TimePoint deadline) {
  ToyRequestOptions options;
  options.deadline = deadline;
  return serving.Ask(model, {Row(4)}, options);
}

// Answers what is left, as at the end of a model.
void DropWaiting(const ServedModel& model) {
  for (const QueuedRow& row : model.queue.Close()) row.request->RowDropped();
}

TEST_CASE("a step answers what is dead, of every model, and tells the next deadline", "[deadline_timer]") {
  ToyServing serving(FakeDevice::Options{});
  const auto one = serving.Serve(ToySpec("one"));
  const auto two = serving.Serve(ToySpec("two"));
  DeadlineTimer timer(serving.models, serving.clock);
  CHECK(timer.Step() == kForever);

  const TimePoint start = serving.clock.Now();
  const ToyRequest first = AskUntil(serving, *one, start + milliseconds(5));
  const ToyRequest second = AskUntil(serving, *two, start + milliseconds(9));
  const ToyRequest third = AskUntil(serving, *one, kForever);
  const ToyRequest cancelled = AskUntil(serving, *two, kForever);
  cancelled.request->Cancel();

  CHECK(timer.Step() == start + milliseconds(5));
  CHECK(cancelled.answer->outcome() == Outcome::kCancelled);
  CHECK_FALSE(first.answer->given());
  serving.clock.Advance(milliseconds(5));
  CHECK(timer.Step() == start + milliseconds(9));
  CHECK(first.answer->status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(first.answer->outcome() == Outcome::kExpired);
  serving.clock.Advance(milliseconds(4));
  CHECK(timer.Step() == kForever);
  CHECK(second.answer->outcome() == Outcome::kExpired);
  CHECK_FALSE(third.answer->given());
  DropWaiting(*one);
}

TEST_CASE("a row is answered at its deadline while every worker is busy", "[deadline_timer]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  std::latch running(1);
  std::latch may_end(1);
  serving.device().during_run = [&](const PaddedBatch&) {
    running.count_down();
    may_end.wait();
  };
  DeadlineTimer timer(serving.models, serving.clock);
  Batcher batcher = serving.Worker();

  const ToyRequest runs = AskUntil(serving, *model, serving.clock.Now() + milliseconds(1));
  std::jthread worker([&](std::stop_token stop) { batcher.Run(std::move(stop)); });
  running.wait();
  std::jthread timing([&](std::stop_token stop) { timer.Run(std::move(stop)); });

  const TimePoint deadline = serving.clock.Now() + milliseconds(3);
  const ToyRequest waits = AskUntil(serving, *model, deadline);
  timer.Watch(deadline);
  serving.clock.AwaitSleeperUntil(deadline);
  CHECK_FALSE(waits.answer->given());
  serving.clock.Advance(milliseconds(3));
  CHECK(waits.answer->outcome() == Outcome::kExpired);
  CHECK_FALSE(runs.answer->given());

  // What had started is finished, though its own deadline has passed too.
  may_end.count_down();
  CHECK(runs.answer->status().ok());
}

TEST_CASE("an earlier deadline wakes the timer, and the later one is kept", "[deadline_timer]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  DeadlineTimer timer(serving.models, serving.clock);
  std::jthread timing([&](std::stop_token stop) { timer.Run(std::move(stop)); });
  const TimePoint start = serving.clock.Now();
  serving.clock.AwaitSleeperUntil(kForever);

  const ToyRequest later = AskUntil(serving, *model, start + milliseconds(10));
  timer.Watch(start + milliseconds(10));
  serving.clock.AwaitSleeperUntil(start + milliseconds(10));
  const ToyRequest sooner = AskUntil(serving, *model, start + milliseconds(4));
  timer.Watch(start + milliseconds(4));
  serving.clock.AwaitSleeperUntil(start + milliseconds(4));

  serving.clock.Advance(milliseconds(4));
  CHECK(sooner.answer->outcome() == Outcome::kExpired);
  CHECK_FALSE(later.answer->given());
  serving.clock.AwaitSleeperUntil(start + milliseconds(10));
  serving.clock.Advance(milliseconds(6));
  CHECK(later.answer->outcome() == Outcome::kExpired);
}

TEST_CASE("a stopped timer ends, asleep or not yet started", "[deadline_timer]") {
  ToyServing serving(FakeDevice::Options{});
  DeadlineTimer timer(serving.models, serving.clock);
  {
    std::jthread timing([&](std::stop_token stop) { timer.Run(std::move(stop)); });
    serving.clock.AwaitSleeperUntil(kForever);
  }
  std::stop_source stopped;
  stopped.request_stop();
  timer.Run(stopped.get_token());
}

}  // namespace
}  // namespace headroom
