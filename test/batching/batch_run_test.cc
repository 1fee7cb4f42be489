#include "batching/batch_run.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>

#include "test/fakes/toy_serving.h"

namespace headroom {
namespace {

using std::chrono::seconds;
using Failure = FakeDevice::Failure;

bool Holds(const PaddedBatch& batch, std::int64_t id) {
  const HostTensor& ids = batch.inputs.front();
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    if (LoadElement(ids.type, ids.data.get() + i * SizeOf(ids.type)) == static_cast<double>(id)) return true;
  }
  return false;
}

// Every look at it finds a millisecond gone.
class TickingClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(std::chrono::milliseconds(ticks_++)); }
  bool WaitUntil(Mutex&, CondVar&, TimePoint) override { return false; }

 private:
  mutable std::atomic<std::int64_t> ticks_ = 1;
};

// The rows of every run, in order.
void RecordRuns(FakeDevice& device, std::vector<std::int64_t>& runs,
                std::function<std::optional<Failure>(const PaddedBatch&)> fail) {
  device.fail_run = [&runs, fail = std::move(fail)](const PaddedBatch& batch) {
    runs.push_back(batch.shape.rows);
    return fail(batch);
  };
}

std::optional<Failure> FullOver(std::int64_t rows, const PaddedBatch& batch) {
  if (batch.shape.rows > rows) return OutOfMemory{};
  return std::nullopt;
}

TEST_CASE("out of memory: a batch is halved until it fits, every row is right, and the shape is not tried again", "[recovery]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  std::vector<std::int64_t> runs;
  RecordRuns(serving.device(), runs, [](const PaddedBatch& batch) { return FullOver(2, batch); });
  std::vector<ToyRequest> asked;
  for (int i = 0; i < 8; ++i) asked.push_back(serving.Ask(*model, {Row(20, i)}));
  Batcher batcher = serving.Worker();
  CHECK(batcher.Step().ran);
  CHECK(runs == std::vector<std::int64_t>{8, 4, 2, 2, 4, 2, 2});
  for (int i = 0; i < 8; ++i) {
    CHECK(asked[static_cast<std::size_t>(i)].answer->Floats() == std::vector<float>{20, static_cast<float>(20 * i), 32, 2});
  }
  CHECK(asked[0].answer->Await().report.retries == 2);
  CHECK(serving.observer.out_of_memory().size() == 3);
  CHECK(serving.observer.retries() == std::vector<RetryReason>(3, RetryReason::kOutOfMemory));
  CHECK(serving.budget().Snapshot().value().reserved == Bytes{0});

  // At once, batches of two; after a while the larger one is tried again.
  runs.clear();
  for (int i = 0; i < 8; ++i) serving.Ask(*model, {Row(20)});
  while (batcher.Step().ran) {
  }
  CHECK(runs == std::vector<std::int64_t>{2, 2, 2, 2});
  serving.clock.Advance(2 * ShapeCeilings::kRelief);
  RecordRuns(serving.device(), runs, [](const PaddedBatch&) { return std::nullopt; });
  runs.clear();
  for (int i = 0; i < 8; ++i) serving.Ask(*model, {Row(20)});
  while (batcher.Step().ran) {
  }
  CHECK(runs == std::vector<std::int64_t>{8});
}

TEST_CASE("putting a batch together and taking it apart are timed apart from its run", "[recovery]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  const ToyRequest toy = serving.Ask(*model, {Row(20), Row(7)});
  TickingClock clock;
  Batcher batcher(serving.serving_device(), serving.models, serving.observer, serving.work, clock);
  CHECK(batcher.Step().ran);
  const BatchReport batch = serving.observer.batches().at(0);
  CHECK(batch.collate == std::chrono::milliseconds(1));
  CHECK(batch.scatter == std::chrono::milliseconds(1));
  const RowReport row = toy.answer->Await().report;
  CHECK(row.collate == batch.collate);
  CHECK(row.scatter == batch.scatter);
  CHECK(row.compute == batch.compute);
}

TEST_CASE("out of memory: a half of shorter rows is padded to their own length", "[recovery]") {
  ToyServing serving(FakeDevice::Options{});
  ModelSpec spec = ToySpec();
  spec.sequence.padding = Padding::kMultipleOf8;
  const auto model = serving.Serve(spec);
  std::vector<std::int64_t> runs;
  RecordRuns(serving.device(), runs, [](const PaddedBatch& batch) { return FullOver(1, batch); });
  const ToyRequest toy = serving.Ask(*model, {Row(30), Row(20)});
  Batcher batcher = serving.Worker();
  CHECK(batcher.Step().ran);
  CHECK(toy.answer->Floats() == std::vector<float>{30, 30, 32, 1, /**/ 20, 20, 24, 1});
}

TEST_CASE("out of memory: one row is tried once more with the device to itself, from an empty cache", "[recovery]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  const int emptied = serving.device().caches_emptied();
  int failures = 0;
  bool emptied_before_last = false;
  std::vector<std::int64_t> runs;
  SECTION("which works") { failures = 1; }
  SECTION("which does not, so that it is refused, and no other") { failures = 2; }
  RecordRuns(serving.device(), runs, [&](const PaddedBatch&) -> std::optional<Failure> {
    emptied_before_last = serving.device().caches_emptied() > emptied;
    if (static_cast<int>(runs.size()) <= failures) return OutOfMemory{};
    return std::nullopt;
  });
  const ToyRequest toy = serving.Ask(*model, {Row(20)});
  Batcher batcher = serving.Worker();
  CHECK(batcher.Step().ran);
  CHECK(runs == std::vector<std::int64_t>{1, 1});
  CHECK(emptied_before_last);
  CHECK(serving.observer.out_of_memory().size() == static_cast<std::size_t>(failures));
  if (failures == 1) {
    CHECK(toy.answer->status().ok());
    CHECK(toy.answer->Await().report.retries == 1);
  } else {
    CHECK(toy.answer->status().code() == absl::StatusCode::kResourceExhausted);
    CHECK(toy.answer->outcome() == Outcome::kOverBudget);
    CHECK(serving.observer.batches().empty());
  }
  const ToyRequest next = serving.Ask(*model, {Row(20)});
  CHECK(batcher.Step().ran);
  CHECK(next.answer->status().ok());
}

TEST_CASE("a row whose memory a neighbour takes under its feet waits, and is answered when it is back", "[recovery]") {
  FakeDevice::Options options;
  options.total = MiB(4);
  ToyServing serving(options);
  const auto model = serving.Serve(ToySpec());
  std::vector<std::int64_t> runs;
  RecordRuns(serving.device(), runs, [&](const PaddedBatch&) -> std::optional<Failure> {
    serving.device().SetNeighbour(KiB(2900));
    return std::nullopt;  // and is now refused its memory by the device
  });
  const ToyRequest toy = serving.Ask(*model, {Row(512)});
  Batcher batcher = serving.Worker();
  CHECK(batcher.Step().ran);
  CHECK(runs.size() == 2);
  CHECK_FALSE(toy.answer->given());
  CHECK(model->queue.rows_waiting() == 1);
  CHECK(serving.budget().Snapshot().value().reserved == Bytes{0});

  CHECK_FALSE(batcher.Step().ran);  // it does not fit
  CHECK_FALSE(toy.answer->given());

  serving.device().fail_run = [](const PaddedBatch&) { return std::nullopt; };
  serving.device().SetNeighbour({0});
  CHECK(batcher.Step().ran);
  CHECK(toy.answer->status().ok());
  CHECK(toy.answer->Await().report.retries == 2);
}

TEST_CASE("a model's error: the guilty row fails, its mates succeed, at most twice the rows are run again", "[recovery]") {
  for (int guilty = 0; guilty < 8; ++guilty) {
    CAPTURE(guilty);
    ToyServing serving(FakeDevice::Options{});
    const auto model = serving.Serve(ToySpec());
    std::vector<std::int64_t> runs;
    RecordRuns(serving.device(), runs, [](const PaddedBatch& batch) -> std::optional<Failure> {
      if (Holds(batch, 13)) return ModelError{"boom in /home/x/model.py"};
      return std::nullopt;
    });
    std::vector<ToyRequest> asked;
    for (int i = 0; i < 8; ++i) asked.push_back(serving.Ask(*model, {Row(20, i == guilty ? 13 : 100 + i)}));
    Batcher batcher = serving.Worker();
    CHECK(batcher.Step().ran);
    std::int64_t repeated = -runs.front();
    for (const std::int64_t rows : runs) repeated += rows;
    CHECK(repeated <= 16);
    for (int i = 0; i < 8; ++i) {
      const Answer& answer = *asked[static_cast<std::size_t>(i)].answer;
      CHECK(answer.times() == 1);
      if (i == guilty) {
        CHECK(answer.status().code() == absl::StatusCode::kInternal);
        CHECK(answer.outcome() == Outcome::kFailed);
        CHECK_THAT(std::string(answer.status().message()), !Catch::Contains("model.py"));
      } else {
        CHECK(answer.Floats().at(1) == static_cast<float>(20 * (100 + i)));
      }
    }
    CHECK(serving.observer.out_of_memory().empty());
  }
}

TEST_CASE("rows of a request that has failed already are not run again", "[recovery]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  std::vector<std::int64_t> runs;
  RecordRuns(serving.device(), runs, [](const PaddedBatch& batch) -> std::optional<Failure> {
    if (Holds(batch, 13)) return ModelError{"boom"};
    return std::nullopt;
  });
  const ToyRequest toy = serving.Ask(*model, {Row(20, 13), Row(20, 1), Row(20, 2), Row(20, 3)});
  Batcher batcher = serving.Worker();
  CHECK(batcher.Step().ran);
  CHECK(runs == std::vector<std::int64_t>{4, 2, 1});
  CHECK(toy.answer->status().code() == absl::StatusCode::kInternal);
  CHECK(toy.answer->times() == 1);
}

TEST_CASE("a device that is lost during recovery leaves no row without an answer", "[recovery]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  serving.device().FailRun(1, OutOfMemory{});
  serving.device().FailRun(3, DeviceLost{"gone"});
  std::vector<ToyRequest> asked;
  for (int i = 0; i < 8; ++i) asked.push_back(serving.Ask(*model, {Row(20)}));
  Batcher batcher = serving.Worker();
  CHECK(batcher.Step().ran);
  int served = 0;
  for (const ToyRequest& toy : asked) {
    CHECK(toy.answer->times() == 1);
    if (toy.answer->status().ok()) {
      ++served;
    } else {
      CHECK(toy.answer->status().code() == absl::StatusCode::kUnavailable);
    }
  }
  CHECK(served == 4);
  CHECK(serving.observer.lost().size() == 1);
  CHECK(serving.budget().Snapshot().value().reserved == Bytes{0});
}

TEST_CASE("an estimator that is short by 30 % is corrected: out of memory reaches no client, and ends", "[recovery]") {
  FakeDevice::Options options;
  options.total = MiB(4);
  ToyServing serving(options);
  const auto model = serving.Serve(ToySpec(), {}, /*bias=*/0.7);
  Batcher batcher = serving.Worker();
  std::size_t out_of_memory = 0;
  for (int round = 0; round < 4; ++round) {
    std::vector<ToyRequest> asked;
    for (int i = 0; i < 24; ++i) asked.push_back(serving.Ask(*model, {Row(512, i)}));
    while (batcher.Step().ran) {
    }
    for (const ToyRequest& toy : asked) CHECK(toy.answer->status().ok());
    if (round == 0) out_of_memory = serving.observer.out_of_memory().size();
  }
  // The first batch of the bucket teaches it; none after that.
  CHECK(serving.observer.out_of_memory().size() == out_of_memory);
  CHECK(model->instances.front().learned->correction.FactorAt(512) >= 1 / 0.7 - 0.01);
  const auto batches = serving.observer.batches();
  for (std::size_t i = 1; i < batches.size(); ++i) CHECK_FALSE(batches[i].under_estimated);
}

}  // namespace
}  // namespace headroom
