#include "batching/thread_shares.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "test/fakes/toy_serving.h"

namespace headroom {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST_CASE("an idle machine gives a run all its processors, a busy one the least", "[thread_shares]") {
  struct Case {
    const char* what;
    ThreadLimits limits;
    ThreadDemand demand;
    int threads;
  };
  const ThreadLimits two{.processors = 2, .least = 1, .most = 2, .least_work = milliseconds(4)};
  const ThreadLimits eight{.processors = 8, .least = 1, .most = 8, .least_work = milliseconds(4)};
  const ThreadLimits pairs{.processors = 8, .least = 2, .most = 8, .least_work = milliseconds(4)};
  const std::vector<Case> cases = {
      {"nothing else to do", two, {.taken = 0, .idle_workers = 1, .waiting = 0, .work = milliseconds(100)}, 2},
      {"a row waits that the other worker will take",
       two,
       {.taken = 0, .idle_workers = 1, .waiting = 1, .work = milliseconds(100)},
       1},
      {"rows wait that no other worker will take",
       two,
       {.taken = 0, .idle_workers = 0, .waiting = 9, .work = milliseconds(100)},
       2},
      {"the other worker runs", two, {.taken = 1, .idle_workers = 0, .waiting = 0, .work = milliseconds(100)}, 1},
      {"the other worker runs on both", two, {.taken = 2, .idle_workers = 0, .waiting = 0, .work = milliseconds(100)}, 1},
      {"both run, and one on both", two, {.taken = 3, .idle_workers = 0, .waiting = 5, .work = milliseconds(100)}, 1},
      {"three run, nobody waits", eight, {.taken = 3, .idle_workers = 4, .waiting = 0, .work = milliseconds(100)}, 5},
      {"three run, two wait", eight, {.taken = 3, .idle_workers = 4, .waiting = 2, .work = milliseconds(100)}, 3},
      {"three run, many wait", eight, {.taken = 3, .idle_workers = 4, .waiting = 1000, .work = milliseconds(100)}, 1},
      {"no more than a run may have",
       {8, 1, 4, milliseconds(4)},
       {.taken = 0, .idle_workers = 7, .waiting = 0, .work = milliseconds(100)},
       4},
      {"never widened", {8, 1, 1, milliseconds(4)}, {.taken = 0, .idle_workers = 7, .waiting = 0, .work = milliseconds(100)}, 1},
      {"most below least is least",
       {8, 2, 1, milliseconds(4)},
       {.taken = 0, .idle_workers = 3, .waiting = 0, .work = milliseconds(100)},
       2},
      {"two each: nobody waits", pairs, {.taken = 0, .idle_workers = 3, .waiting = 0, .work = milliseconds(100)}, 8},
      {"two each: one waits", pairs, {.taken = 0, .idle_workers = 3, .waiting = 1, .work = milliseconds(100)}, 6},
      {"two each: three wait", pairs, {.taken = 0, .idle_workers = 3, .waiting = 3, .work = milliseconds(100)}, 2},
      {"too little work for two", two, {.taken = 0, .idle_workers = 1, .waiting = 0, .work = microseconds(7999)}, 1},
      {"just enough work for two", two, {.taken = 0, .idle_workers = 1, .waiting = 0, .work = milliseconds(8)}, 2},
      {"work for three", eight, {.taken = 0, .idle_workers = 7, .waiting = 0, .work = milliseconds(13)}, 3},
      {"two each: work for one", pairs, {.taken = 0, .idle_workers = 3, .waiting = 0, .work = milliseconds(5)}, 2},
      {"no work is too little", {8, 1, 8, {}}, {.taken = 0, .idle_workers = 7, .waiting = 0, .work = {}}, 8},
      {"more than there are processors",
       {1, 4, 4, milliseconds(4)},
       {.taken = 0, .idle_workers = 0, .waiting = 0, .work = milliseconds(100)},
       4},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    CHECK(ThreadsForRun(c.limits, c.demand) == c.threads);
  }
}

TEST_CASE("of two runs that start at once only the first has all processors", "[thread_shares]") {
  ThreadShares shares;
  shares.SetLimits({.processors = 4, .least = 1, .most = 4, .least_work = {}});
  ThreadShare first = shares.Take(/*workers=*/4, /*waiting=*/0, {});
  ThreadShare second = shares.Take(4, 0, {});
  CHECK(first.threads() == 4);
  CHECK(first.extra() == 3);
  CHECK(second.threads() == 1);
  CHECK(second.extra() == 0);
  CHECK(shares.taken() == 5);
  first.GiveExtraBack();
  CHECK(first.threads() == 1);
  CHECK(shares.taken() == 2);
  ThreadShare third = shares.Take(4, 0, {});
  CHECK(third.threads() == 2);
  first.End();
  first.End();
  CHECK(first.threads() == 1);  // what it was can still be read
  CHECK(shares.taken() == 3);
  second = std::move(third);
  CHECK(shares.taken() == 2);
  {
    const ThreadShare last = std::move(second);
    CHECK(shares.taken() == 2);
  }
  CHECK(shares.taken() == 0);
  // All four workers are idle again.
  CHECK(shares.Take(4, 2, {}).threads() == 2);
  CHECK(shares.taken() == 0);
}

struct WideServing : ToyServing {
  WideServing() : ToyServing(FakeDevice::Options{}) {
    serving_device().threads.SetLimits({.processors = 4, .least = 1, .most = 4, .least_work = {}});
    serving_device().workers = 4;
    device().during_run = [this](const PaddedBatch& batch) { noted.push_back(batch.threads); };
  }
  // As Serve, where a thread more is known to take so much.
  std::shared_ptr<const ServedModel> ServeWide(Bytes each) {
    auto model = Serve(ToySpec());
    const_cast<ModelInstance&>(model->instances.front()).thread_memory = each;  // before anybody else sees it
    return model;
  }
  std::vector<int> noted;  // the threads of each run
};

TEST_CASE("a batch alone is run wide, told so, and teaches no latency", "[batcher][thread_shares]") {
  WideServing serving;
  const auto model = serving.ServeWide(KiB(4));
  Batcher batcher = serving.Worker();
  const ToyRequest toy = serving.Ask(*model, {Row(20)});
  const Duration foreseen = model->latency().Of({1, 32});
  REQUIRE(batcher.Step().ran);
  CHECK(toy.answer->given());
  CHECK(serving.noted == std::vector<int>{4});
  REQUIRE(serving.observer.batches().size() == 1);
  const BatchReport report = serving.observer.batches().front();
  CHECK(report.extra_threads == 3);
  CHECK(report.expected_tensors == model->instances.front().tensor_estimator.Peak({1, 32}).value() + KiB(12));
  CHECK(model->latency().Of({1, 32}) == foreseen);
  CHECK(serving.serving_device().threads.taken() == 0);

  // Rows of another bucket wait for another worker meanwhile.
  const ToyRequest more = serving.Ask(*model, {Row(20), Row(400), Row(400)});
  REQUIRE(batcher.Step().ran);
  CHECK(serving.noted.back() < 4);
}

TEST_CASE("a run is not widened where its memory is not known, or not there", "[batcher][thread_shares]") {
  WideServing serving;
  Batcher batcher = serving.Worker();
  SECTION("not known") {
    const auto model = serving.Serve(ToySpec());
    serving.Ask(*model, {Row(20)});
    REQUIRE(batcher.Step().ran);
  }
  SECTION("not there") {
    const auto model = serving.ServeWide(GiB(1));
    serving.Ask(*model, {Row(20)});
    REQUIRE(batcher.Step().ran);
  }
  CHECK(serving.noted == std::vector<int>{1});
  CHECK(serving.observer.batches().front().extra_threads == 0);
  CHECK(serving.serving_device().threads.taken() == 0);
}

TEST_CASE("what is reserved for a wide run holds its threads' memory", "[batcher][thread_shares]") {
  WideServing serving;
  const auto model = serving.ServeWide(MiB(1));
  Bytes reserved{0};
  serving.device().during_run = [&](const PaddedBatch&) { reserved = serving.budget().reserved(); };
  serving.Ask(*model, {Row(20)});
  Batcher batcher = serving.Worker();
  REQUIRE(batcher.Step().ran);
  const ModelInstance& instance = model->instances.front();
  const Bytes needs = instance.Needs(serving.clock.Now()).Peak({1, 32}).value();
  CHECK(reserved == needs + Scale(MiB(3), 1 + model->spec->safety_margin));
}

TEST_CASE("what is run again after a failure has the least of threads", "[batcher][thread_shares]") {
  WideServing serving;
  const auto model = serving.ServeWide(KiB(4));
  serving.serving_device().workers = 1;
  serving.device().FailRun(1, OutOfMemory{});
  const ToyRequest toy = serving.Ask(*model, {Row(20), Row(21)});
  Batcher batcher = serving.Worker();
  while (batcher.Step().ran) {
  }
  CHECK(toy.answer->given());
  CHECK(serving.noted == std::vector<int>{1, 1});
  CHECK(serving.serving_device().threads.taken() == 0);
}

}  // namespace
}  // namespace headroom
