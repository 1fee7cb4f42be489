#include "server/worker_pool.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/model_loader.h"
#include "test/fakes/fake_device.h"
#include "test/fakes/manual_clock.h"
#include "test/fakes/recording_observer.h"
#include "test/fakes/toy_request.h"
#include "test/server/scratch_folder.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;

// P on a fake device, and what a pool needs beside it.
class Served {
 public:
  Served() {
    auto fake = std::make_unique<FakeDevice>();
    fake->during_run = [this](const PaddedBatch&) {
      if (!hold_runs) return;
      entered.set_value();
      released.get_future().wait();
    };
    devices_.push_back(std::make_unique<ServingDevice>());
    devices_[0]->device = std::move(fake);
    devices_[0]->budget = std::make_unique<MemoryBudget>(*devices_[0]->device, 0.8);
    RepositoryModel model;
    model.name = "P";
    model.version = 1;
    model.model_file = folder_.PathOf("model.pt");
    model.spec = ToySpec();
    model.spec.sequence.padding_check = PaddingCheck::kOff;
    entries_ = LoadModels({model}, devices_, registry_, {}, {}).value();
    catalog_.Put(entries_[0]);
  }

  WorkerPool::Parts PartsFor(int workers) { return {devices_, entries_, catalog_, observer_, work_, deadlines_, clock, workers}; }

  ToyRequest Ask(const std::vector<Ids>& rows, TimePoint deadline = kForever) {
    const ServedModel& model = *entries_[0].model;
    ToyRequest made =
        MakeToyRequest(model.spec, model.instances[0].ladder, rows, {.arrived = clock.Now(), .deadline = deadline, .mask = {}});
    REQUIRE(model.queue.Enqueue(made.request).ok());
    deadlines_.Watch(deadline);
    work_.Notify();
    return made;
  }

  FakeDevice& device() { return static_cast<FakeDevice&>(*devices_[0]->device); }

  ManualClock clock;
  // While this is set a run says that it has begun, and waits to be released. For one run.
  std::atomic<bool> hold_runs = false;
  std::promise<void> entered;
  std::promise<void> released;

 private:
  ScratchFolder folder_;
  std::vector<std::unique_ptr<ServingDevice>> devices_;
  ModelRegistry registry_;
  RecordingObserver observer_;
  WorkSignal work_;
  ModelCatalog catalog_;
  DeadlineTimer deadlines_{catalog_.models(), clock};
  std::vector<CatalogEntry> entries_;
};

TEST_CASE("every worker has run every model once when the pool is there", "[worker_pool]") {
  for (const int workers : {1, 3}) {
    Served served;
    const int before = served.device().runs();
    const WorkerPool pool(served.PartsFor(workers));
    CHECK(served.device().runs() - before == workers);
  }
}

TEST_CASE("a pool answers what is asked of it", "[worker_pool]") {
  Served served;
  const WorkerPool pool(served.PartsFor(2));
  const ToyRequest short_rows = served.Ask({{1, 2, 3}, {4}});
  const ToyRequest long_row = served.Ask({Row(300, 2)});
  REQUIRE(short_rows.answer->status().ok());
  CHECK(short_rows.answer->Floats()[1] == 6);  // the sum of the first row's ids
  CHECK(long_row.answer->Floats()[1] == 600);
}

TEST_CASE("a pool ends when what waits is answered", "[worker_pool]") {
  Served served;
  std::vector<ToyRequest> asked;
  {
    const WorkerPool pool(served.PartsFor(2));
    for (std::int64_t i = 0; i < 50; ++i) asked.push_back(served.Ask({Row(1 + i), Row(500 - i)}));
  }
  for (const ToyRequest& request : asked) {
    CHECK(request.answer->times() == 1);
    CHECK(request.answer->status().ok());
  }
}

TEST_CASE("a pool that was never asked anything ends", "[worker_pool]") {
  Served served;
  const WorkerPool pool(served.PartsFor(2));
}

TEST_CASE("a row whose time is up is answered while every worker is busy", "[worker_pool]") {
  Served served;
  const WorkerPool pool(served.PartsFor(1));
  served.hold_runs = true;
  const ToyRequest running = served.Ask({{1}});
  served.entered.get_future().wait();
  served.hold_runs = false;

  const TimePoint deadline = served.clock.Now() + milliseconds(5);
  const ToyRequest waiting = served.Ask({{2}}, deadline);
  served.clock.AwaitSleeperUntil(deadline);
  served.clock.Advance(milliseconds(5));
  CHECK(waiting.answer->status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_FALSE(running.answer->given());

  served.released.set_value();
  CHECK(running.answer->status().ok());
}

}  // namespace
}  // namespace headroom
