#include "batching/degradation.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "test/fakes/toy_serving.h"

namespace headroom {
namespace {

using std::chrono::seconds;
using Level = DegradationLevel;

TEST_CASE("a level is entered at once and left one at a time, above a higher share and after a while", "[degradation]") {
  DegradationLadder ladder;
  struct Step {
    int second;
    double headroom;
    Level level;
  };
  const std::vector<Step> steps = {
      {0, 1.0, Level::kNone},
      {1, 0.5, Level::kNone},             // not below
      {2, 0.49, Level::kSmallerBatches},  // at once
      {3, 0.55, Level::kSmallerBatches},  // between the two shares: stays, whatever the time
      {60, 0.59, Level::kSmallerBatches},
      {61, 0.60, Level::kNone},
      {62, 0.20, Level::kLowPriorityRefused},  // several at once
      {63, 0.10, Level::kFallbackModel},
      {64, 1.00, Level::kFallbackModel},  // too soon
      {72, 1.00, Level::kFallbackModel},
      {73, 1.00, Level::kLowPriorityRefused},
      {74, 1.00, Level::kLowPriorityRefused},
      {83, 1.00, Level::kNoTiers},
      {84, 0.24, Level::kLowPriorityRefused},  // back without waiting
      {93, 0.34, Level::kLowPriorityRefused},
      {94, 0.36, Level::kNoTiers},
      {110, 0.44, Level::kNoTiers},
      {111, 0.45, Level::kSmallerBatches},
      {121, 0.61, Level::kNone},
      {500, 1.5, Level::kNone},
  };
  for (const Step& step : steps) {
    INFO("second " << step.second);
    CHECK(NameOf(ladder.Update(step.headroom, TimePoint{} + seconds(step.second))) == std::string(NameOf(step.level)));
  }
}

TEST_CASE("nothing left at all is the last level", "[degradation]") {
  DegradationLadder ladder;
  CHECK(ladder.Update(0, TimePoint{}) == Level::kFallbackModel);
}

TEST_CASE("what each level leaves out", "[degradation]") {
  struct Case {
    Level level;
    std::int64_t largest_batch;  // of 9
    bool no_tiers;
    std::vector<std::int64_t> refused;  // priorities of 5
  };
  const std::vector<Case> cases = {{Level::kNone, 9, false, {}},
                                   {Level::kSmallerBatches, 4, false, {}},
                                   {Level::kNoTiers, 4, true, {}},
                                   {Level::kLowPriorityRefused, 4, true, {4, 5}},
                                   {Level::kFallbackModel, 4, true, {4, 5}}};
  for (const Case& expected : cases) {
    INFO(NameOf(expected.level));
    CHECK(LargestBatchAt(expected.level, 9) == expected.largest_batch);
    CHECK(RefusesTiers(expected.level) == expected.no_tiers);
    std::vector<std::int64_t> refused;
    for (std::int64_t priority = 1; priority <= 5; ++priority) {
      if (RefusesPriority(expected.level, priority, 5)) refused.push_back(priority);
    }
    CHECK(refused == expected.refused);
  }
  CHECK(LargestBatchAt(Level::kFallbackModel, 1) == 1);
  CHECK(RefusesPriority(Level::kFallbackModel, 2, 2));
  CHECK_FALSE(RefusesPriority(Level::kFallbackModel, 1, 1));
  // No priorities: nobody is less urgent.
  CHECK_FALSE(RefusesPriority(Level::kFallbackModel, 0, 0));
}

TEST_CASE("a neighbour that takes the memory halves the batches, and gives them back when it leaves", "[degradation]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());  // at most 8 rows a batch
  DegradationWatch watch(serving.serving_device());
  watch.MarkReady();
  watch.Step(serving.clock.Now());
  CHECK(model->degradation() == Level::kNone);

  const auto rows_of_batches = [&] {
    const std::size_t before = serving.observer.batches().size();
    const ToyRequest toy = serving.Ask(*model, std::vector<Ids>(8, Row(4)));
    Batcher worker = serving.Worker();
    while (worker.Step().ran) {
    }
    CHECK(toy.answer->status().ok());
    std::vector<std::int64_t> rows;
    const auto batches = serving.observer.batches();
    for (std::size_t i = before; i < batches.size(); ++i) rows.push_back(batches[i].rows);
    return rows;
  };
  CHECK(rows_of_batches() == std::vector<std::int64_t>{8});

  serving.device().SetNeighbour(MiB(36));  // of 64
  watch.Step(serving.clock.Now());
  CHECK(model->degradation() == Level::kSmallerBatches);
  CHECK(rows_of_batches() == std::vector<std::int64_t>{4, 4});

  serving.device().SetNeighbour({0});
  serving.clock.Advance(seconds(10));
  watch.Step(serving.clock.Now());
  CHECK(model->degradation() == Level::kNone);
  CHECK(rows_of_batches() == std::vector<std::int64_t>{8});
}

TEST_CASE("a device that does not tell its memory keeps its level", "[degradation]") {
  ToyServing serving(FakeDevice::Options{});
  serving.Serve(ToySpec());
  DegradationWatch watch(serving.serving_device());
  watch.MarkReady();
  serving.device().FailMemoryAfter(0);
  watch.Step(serving.clock.Now());
  CHECK(serving.serving_device().degradation == Level::kNone);
}

TEST_CASE("a model on several devices goes by the one that is best off", "[degradation]") {
  ToyServing serving;
  serving.AddDevice({.name = "cuda:0"});
  serving.AddDevice({.name = "cuda:1"});
  const auto model = serving.Serve(ToySpec());
  serving.serving_device(0).degradation = Level::kFallbackModel;
  CHECK(model->degradation() == Level::kNone);
  serving.serving_device(1).degradation = Level::kNoTiers;
  CHECK(model->degradation() == Level::kNoTiers);
}

}  // namespace
}  // namespace headroom
