#include "batching/admission.h"

#include <catch2/catch.hpp>

#include "test/fakes/toy_serving.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Decision = Admission::Decision;

// `rows` rows of 10 ms each, in batches of 8.
Load Rows(std::int64_t rows) { return {rows, Bytes{100 * rows}, milliseconds(10) * rows, 125'000 * rows}; }

LatencyModel::Line Line(std::int64_t fixed_ms = 0, double scale = 1) { return {milliseconds(fixed_ms), scale}; }

TEST_CASE("the wait is what waits and runs, shared by the workers, with the other models' turns between", "[admission]") {
  struct Case {
    const char* what;
    Backlog backlog;
    LatencyModel::Line line;
    Duration wait;
  };
  const std::vector<Case> cases = {
      {"nothing waits, a worker is idle", {.running = milliseconds(50), .workers = 2, .idle_workers = 1}, Line(), milliseconds(0)},
      {"nothing waits, all are busy", {.running = milliseconds(50), .workers = 2}, Line(), milliseconds(25)},
      {"eight rows", {.ahead = Rows(8), .workers = 1}, Line(), milliseconds(80)},
      {"eight rows and what runs", {.ahead = Rows(8), .running = milliseconds(40), .workers = 2}, Line(), milliseconds(60)},
      {"each batch takes 100 ms more", {.ahead = Rows(16), .workers = 1}, Line(100), milliseconds(360)},
      {"a machine half as fast", {.ahead = Rows(8), .workers = 1}, Line(0, 2), milliseconds(160)},
      {"a model with more to do takes turns", {.ahead = Rows(8), .others = {seconds(9)}, .workers = 1}, Line(), milliseconds(160)},
      {"one with less takes what it has",
       {.ahead = Rows(8), .others = {milliseconds(30)}, .workers = 1},
       Line(),
       milliseconds(110)},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    CHECK(PredictWait(c.backlog, c.line) == c.wait);
  }
}

TEST_CASE("whom a backlog keeps too long is refused at once", "[admission]") {
  struct Case {
    const char* what;
    Backlog backlog;
    Duration run;
    Patience patience;
    bool caller_known;
    Decision decision;
    Duration retry_after;
  };
  const Backlog idle{.workers = 1, .idle_workers = 1};
  const Backlog second{.waiting = Rows(100), .ahead = Rows(100), .workers = 1};  // a second of work
  const Backlog others{.waiting = Rows(100), .ahead = Rows(100), .own = Rows(10), .workers = 1};
  const Backlog mine{.waiting = Rows(100), .ahead = Rows(100), .own = Rows(90), .workers = 1};
  const std::vector<Case> cases = {
      {"no bound", second, milliseconds(10), {}, false, Decision::kAdmit, {}},
      {"its timeout is longer", second, milliseconds(500), {.to_start = milliseconds(1250)}, false, Decision::kAdmit, {}},
      {"its timeout is shorter",
       second,
       milliseconds(0),
       {.to_start = milliseconds(900)},
       false,
       Decision::kTooLate,
       milliseconds(100)},
      {"its deadline is longer", second, milliseconds(50), {.to_answer = milliseconds(1075)}, false, Decision::kAdmit, {}},
      {"its deadline leaves no time to run",
       second,
       milliseconds(52),
       {.to_answer = milliseconds(1075)},
       false,
       Decision::kTooLate,
       milliseconds(10)},
      {"nobody waits so long",
       second,
       milliseconds(0),
       {.to_wait = milliseconds(700)},
       false,
       Decision::kOverloaded,
       milliseconds(300)},
      {"idle: tried, however long it is believed to run",
       idle,
       seconds(9),
       {.to_answer = milliseconds(100)},
       false,
       Decision::kAdmit,
       {}},
      {"a caller with a small part", others, milliseconds(0), {.to_start = milliseconds(1100)}, true, Decision::kAdmit, {}},
      {"a caller with more than what is free",
       mine,
       milliseconds(0),
       {.to_start = milliseconds(1100)},
       true,
       Decision::kOverShare,
       milliseconds(10)},
      {"the same, with room enough", mine, milliseconds(0), {.to_start = milliseconds(2000)}, true, Decision::kAdmit, {}},
      {"callers are not told apart", mine, milliseconds(0), {.to_start = milliseconds(1100)}, false, Decision::kAdmit, {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    const Admission admission = Decide(c.backlog, Line(), c.run, c.patience, c.caller_known, 1, 1024);
    CHECK(admission.decision == c.decision);
    CHECK(admission.retry_after == c.retry_after);
  }
}

TEST_CASE("a caller may have as many rows waiting as are free", "[admission]") {
  const auto decide = [](std::int64_t own, std::int64_t rows, std::int64_t waiting, std::int64_t most) {
    return Decide({.waiting = Rows(waiting), .ahead = Rows(waiting), .own = Rows(own), .workers = 1}, Line(), {}, {}, true, rows,
                  most)
        .decision;
  };
  CHECK(decide(10, 1, 79, 90) == Decision::kAdmit);  // 11 of 11
  CHECK(decide(11, 1, 79, 90) == Decision::kOverShare);
  CHECK(decide(0, 8, 85, 90) == Decision::kAdmit);  // who has nothing waiting is let in while there is room
}

TEST_CASE("a hint when to come again is the time until so many rows have gone", "[admission]") {
  CHECK(TimeToDrain(25, Rows(100), seconds(2)) == milliseconds(500));
  CHECK(TimeToDrain(200, Rows(100), seconds(2)) == seconds(2));
  CHECK(TimeToDrain(1, Rows(100), milliseconds(2)) == milliseconds(10));  // not sooner than that
  CHECK(TimeToDrain(100, Rows(100), seconds(100)) == seconds(10));        // nor later
  CHECK(TimeToDrain(1, Load{}, seconds(1)) == seconds(1));
}

TEST_CASE("the backlog of a model is its queue's, the other models' and what runs on its devices", "[admission]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec("P"));
  const auto other = serving.Serve(ToySpec("Q"));
  serving.serving_device().workers = 2;
  const ToyRequest first = serving.Ask(*model, {Row(32), Row(32)}, {.priority = 1, .caller = 7});
  const ToyRequest second = serving.Ask(*model, {Row(32)}, {.priority = 2});
  const ToyRequest third = serving.Ask(*other, {Row(32)});

  const TimePoint now = serving.clock.Now();
  Backlog backlog = BacklogOf(*model, serving.models, 1, 7, now);
  CHECK(backlog.ahead.rows == 2);
  CHECK(backlog.own.rows == 2);
  CHECK(backlog.others.size() == 1);
  CHECK(backlog.workers == 2);
  CHECK(backlog.idle_workers == 2);
  CHECK(BacklogOf(*model, serving.models, 2, 8, now).ahead.rows == 3);
  CHECK(BacklogOf(*model, serving.models, 2, 8, now).own.rows == 0);
  {
    const RunEntry running = serving.serving_device().runs.Enter({"P", {1, 32}, now, milliseconds(30)});
    backlog = BacklogOf(*model, serving.models, 1, 7, now + milliseconds(10));
    CHECK(backlog.idle_workers == 1);
    CHECK(backlog.running == milliseconds(20));
    CHECK(BacklogOf(*model, serving.models, 1, 7, now + milliseconds(50)).running == Duration::zero());
  }
  CHECK(serving.serving_device().runs.count() == 0);

  Batcher batcher = serving.Worker();
  while (batcher.Step().ran) {
  }
  CHECK(BacklogOf(*model, serving.models, 9, 7, now).ahead == Load{});
  CHECK(BacklogOf(*model, serving.models, 9, 7, now).own == Load{});
}

TEST_CASE("a queue that is closed refuses nobody for load: the version that took its place may have room", "[admission]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  model->queue.Close();
  CHECK_FALSE(CheckLoad(*model, serving.models, {}, serving.clock.Now()).refused.has_value());
}

}  // namespace
}  // namespace headroom
