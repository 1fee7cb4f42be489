#include "batching/batcher.h"

#include <catch2/catch.hpp>
#include <latch>
#include <random>
#include <thread>

#include "test/fakes/toy_serving.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;

// A row of 512 takes 512 KiB, a batch 64 KiB more; with the margin four of them fit 80 % of the 3 MiB that the weights leave.
FakeDevice::Options Small() {
  FakeDevice::Options options;
  options.total = MiB(4);
  return options;
}

FakeDevice::Options Named(std::string name, Bytes total = MiB(64)) {
  FakeDevice::Options options;
  options.name = std::move(name);
  options.total = total;
  return options;
}

void DropWaiting(const ServedModel& model) {
  for (const QueuedRow& row : model.queue.Close()) row.request->RowDropped();
}

// Steps until there is nothing to do; how many batches ran.
int StepAll(Batcher& batcher) {
  int ran = 0;
  while (batcher.Step().ran) ++ran;
  return ran;
}

TEST_CASE("a step without work runs nothing and wants no waking", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  Batcher batcher = serving.Worker();
  CHECK_FALSE(batcher.Step().ran);
  serving.Serve(ToySpec());
  const auto result = batcher.Step();
  CHECK_FALSE(result.ran);
  CHECK(result.next_wake == kForever);
}

TEST_CASE("requests that wait together run together, and each gets its own answer", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  const ToyRequest one = serving.Ask(*model, {{1, 2, 3}, {10}});
  const ToyRequest two = serving.Ask(*model, {{5, 5}});
  Batcher batcher = serving.Worker();
  CHECK(StepAll(batcher) == 1);
  // mask count, sum of ids, padded length, rows of the batch
  CHECK(one.answer->Floats() == std::vector<float>{3, 6, 32, 3, /**/ 1, 10, 32, 3});
  CHECK(two.answer->Floats() == std::vector<float>{2, 10, 32, 3});
}

TEST_CASE("a request whose rows fall into several buckets is answered once, in order", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  const ToyRequest toy = serving.Ask(*model, {Row(100, 2), Row(5, 3), Row(300, 1)});
  Batcher batcher = serving.Worker();
  CHECK(StepAll(batcher) == 3);
  CHECK(toy.answer->times() == 1);
  CHECK(toy.answer->Floats() == std::vector<float>{100, 200, 128, 1, /**/ 5, 15, 32, 1, /**/ 300, 300, 512, 1});
}

TEST_CASE("a batch is reported with what it was", "[batcher]") {
  ToyServing serving(Named("cpu"));
  const auto model = serving.Serve(ToySpec());
  const ToyRequest one = serving.Ask(*model, {Row(20)});
  serving.clock.Advance(milliseconds(3));
  const ToyRequest two = serving.Ask(*model, {Row(30)});
  Batcher batcher = serving.Worker();
  batcher.Step();
  const auto batches = serving.observer.batches();
  REQUIRE(batches.size() == 1);
  const BatchReport& report = batches[0];
  CHECK(report.model == "P");
  CHECK(report.device == "cpu");
  CHECK(report.bucket == 32);
  CHECK(report.rows == 2);
  CHECK(report.useful_tokens == 50);
  CHECK(report.padding_tokens == 14);
  CHECK(report.limited_by == BatchLimit::kNone);
  CHECK(report.estimated == KiB(64 + 2 * 32));
  CHECK(report.actual == KiB(64 + 2 * 32));
  CHECK(report.compute == std::chrono::microseconds(200));
  CHECK(report.waits == std::vector<Duration>{milliseconds(3), milliseconds(0)});

  const RowReport row = one.answer->Await().report;
  CHECK(row.batch_rows == 2);
  CHECK(row.bucket == 32);
  CHECK(row.padded_length == 32);
  CHECK(row.queue == milliseconds(3));
  CHECK(row.compute == std::chrono::microseconds(200));
  CHECK(row.estimated == KiB(64 + 2 * 32));
}

TEST_CASE("a load that does not fit at once is split by memory, and every row is answered", "[batcher]") {
  ToyServing serving(Small());
  const auto model = serving.Serve(ToySpec());
  std::vector<ToyRequest> asked;
  for (int i = 0; i < 7; ++i) asked.push_back(serving.Ask(*model, {Row(512)}));
  Batcher batcher = serving.Worker();
  CHECK(StepAll(batcher) == 2);
  for (const ToyRequest& toy : asked) CHECK(toy.answer->status().ok());
  const auto batches = serving.observer.batches();
  CHECK(batches[0].rows == 4);
  CHECK(batches[0].limited_by == BatchLimit::kMemory);
  CHECK(batches[1].rows == 3);
  CHECK(batches[1].limited_by == BatchLimit::kNone);
  CHECK(serving.observer.out_of_memory().empty());
}

TEST_CASE("a row that cannot fit even the idle device is refused at once, and no other", "[batcher]") {
  ToyServing serving(Named("cpu", KiB(1024 + 500)));
  const auto model = serving.Serve(ToySpec());
  const ToyRequest huge = serving.Ask(*model, {Row(512)});
  const ToyRequest fine = serving.Ask(*model, {Row(20)});
  Batcher batcher = serving.Worker();
  CHECK(StepAll(batcher) == 1);
  CHECK(huge.answer->status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(huge.answer->outcome() == Outcome::kOverBudget);
  CHECK_THAT(std::string(huge.answer->status().message()), Catch::Contains(std::to_string(serving.budget().idle_budget().count)));
  CHECK(fine.answer->status().ok());
}

TEST_CASE("a row that does not fit beside a neighbour waits, and runs when the neighbour has gone", "[batcher]") {
  ToyServing serving(Small());
  const auto model = serving.Serve(ToySpec());
  serving.device().SetNeighbour(MiB(3));
  const ToyRequest toy = serving.Ask(*model, {Row(512)});
  Batcher batcher = serving.Worker();
  const auto result = batcher.Step();
  CHECK_FALSE(result.ran);
  // The neighbour tells nobody: look again soon.
  CHECK(result.next_wake > serving.clock.Now());
  CHECK(result.next_wake <= serving.clock.Now() + milliseconds(100));
  CHECK_FALSE(toy.answer->given());
  serving.device().SetNeighbour({0});
  CHECK(batcher.Step().ran);
  CHECK(toy.answer->status().ok());
}

TEST_CASE("while a batch runs its margined estimate is reserved, and nothing any more when the answers go out", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  Bytes while_running{-1};
  Bytes while_answering{-1};
  serving.device().during_run = [&](const PaddedBatch&) { while_running = serving.budget().Snapshot().value().reserved; };
  ToyRequestOptions options;
  options.before_answer = [&] { while_answering = serving.budget().Snapshot().value().reserved; };
  SECTION("after a success") {}
  SECTION("after running out of memory") { serving.device().FailRun(1, OutOfMemory{MiB(1)}); }
  SECTION("after a model error") { serving.device().FailRun(1, ModelError{"boom"}); }
  const ToyRequest toy = serving.Ask(*model, {Row(20), Row(30)}, options);
  Batcher batcher = serving.Worker();
  batcher.Step();
  CHECK(while_answering == Bytes{0});
  if (toy.answer->status().ok()) CHECK(while_running == Scale(KiB(64 + 2 * 32), 1.05));
}

TEST_CASE("a model's failure is INTERNAL, without the library's words, and survived", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  serving.device().FailRun(1, ModelError{"index out of range in /home/x/model.py"});
  const ToyRequest first = serving.Ask(*model, {Row(20)});
  Batcher batcher = serving.Worker();
  CHECK(batcher.Step().ran);
  CHECK(first.answer->status().code() == absl::StatusCode::kInternal);
  CHECK(first.answer->outcome() == Outcome::kFailed);
  CHECK_THAT(std::string(first.answer->status().message()), !Catch::Contains("model.py"));
  const ToyRequest second = serving.Ask(*model, {Row(20)});
  CHECK(batcher.Step().ran);
  CHECK(second.answer->status().ok());
}

TEST_CASE("outputs that are not as declared fail the batch, and are not read", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  serving.device().on_outputs = [](std::vector<HostTensor>& outputs) { outputs[0].shape = {3, 4}; };
  const ToyRequest toy = serving.Ask(*model, {Row(20), Row(20)});
  Batcher batcher = serving.Worker();
  CHECK(batcher.Step().ran);
  CHECK(toy.answer->status().code() == absl::StatusCode::kInternal);
  CHECK(serving.observer.batches().empty());
}

TEST_CASE("a lost device is told, and its rows are UNAVAILABLE", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  serving.device().FailRun(1, DeviceLost{"illegal memory access"});
  const ToyRequest toy = serving.Ask(*model, {Row(20)});
  Batcher batcher = serving.Worker();
  CHECK(batcher.Step().ran);
  CHECK(toy.answer->status().code() == absl::StatusCode::kUnavailable);
  CHECK(toy.answer->outcome() == Outcome::kUnavailable);
  CHECK(serving.observer.lost() == std::vector<std::pair<std::string, std::string>>{{"cpu", "illegal memory access"}});
}

TEST_CASE("memory that cannot be read is a lost device, never a refusal for want of bytes", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  serving.device().FailMemoryAfter(0);
  const ToyRequest toy = serving.Ask(*model, {Row(20)});
  Batcher batcher = serving.Worker();
  const auto result = batcher.Step();
  CHECK_FALSE(result.ran);
  CHECK(result.next_wake > serving.clock.Now());
  CHECK(serving.observer.lost().size() == 1);
  CHECK_FALSE(toy.answer->given());
  CHECK(serving.device().runs() == 0);
  DropWaiting(*model);
}

TEST_CASE("expired and cancelled rows are answered and never run", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  ToyRequestOptions options;
  options.deadline = serving.clock.Now() + milliseconds(2);
  const ToyRequest late = serving.Ask(*model, {Row(20)}, options);
  const ToyRequest cancelled = serving.Ask(*model, {Row(20), Row(500)});
  cancelled.request->Cancel();
  serving.clock.Advance(milliseconds(2));
  Batcher batcher = serving.Worker();
  CHECK_FALSE(batcher.Step().ran);
  CHECK(late.answer->status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(cancelled.answer->status().code() == absl::StatusCode::kCancelled);
  CHECK(serving.device().runs() == 0);
}

TEST_CASE("a request whose first part failed does not run its second", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  serving.device().FailRun(1, ModelError{"boom"});
  const ToyRequest toy = serving.Ask(*model, {Row(20), Row(500)});
  Batcher batcher = serving.Worker();
  StepAll(batcher);
  CHECK(toy.answer->times() == 1);
  CHECK(toy.answer->outcome() == Outcome::kFailed);
  CHECK(serving.device().runs() == 1);
}

TEST_CASE("of several models the most urgent row's runs first", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto a = serving.Serve(ToySpec("a"));
  const auto b = serving.Serve(ToySpec("b"));
  const auto c = serving.Serve(ToySpec("c"));
  const ToyRequest first = serving.Ask(*b, {Row(20)});
  serving.clock.Advance(milliseconds(1));
  const ToyRequest second = serving.Ask(*a, {Row(20)});
  ToyRequestOptions urgent;
  urgent.priority = -1;
  const ToyRequest third = serving.Ask(*c, {Row(20)}, urgent);
  Batcher batcher = serving.Worker();
  CHECK(StepAll(batcher) == 3);
  std::vector<std::string> order;
  for (const BatchReport& batch : serving.observer.batches()) order.push_back(batch.model);
  CHECK(order == std::vector<std::string>{"c", "b", "a"});
}

TEST_CASE("a model whose rows cannot run now does not hold up another", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  ModelSpec patient = ToySpec("patient");
  patient.queue.max_delay = milliseconds(50);
  const auto waits = serving.Serve(patient);
  const auto runs = serving.Serve(ToySpec("prompt"));
  const ToyRequest first = serving.Ask(*waits, {Row(20)});
  serving.clock.Advance(milliseconds(1));
  const ToyRequest second = serving.Ask(*runs, {Row(20)});
  Batcher batcher = serving.Worker();
  CHECK(batcher.Step().ran);
  CHECK(second.answer->given());
  CHECK_FALSE(first.answer->given());
  DropWaiting(*waits);
}

TEST_CASE("a row waits for company no longer than the model's delay", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  ModelSpec spec = ToySpec();
  spec.queue.max_delay = milliseconds(5);
  const auto model = serving.Serve(spec);
  const TimePoint arrived = serving.clock.Now();
  const ToyRequest toy = serving.Ask(*model, {Row(20)});
  Batcher batcher = serving.Worker();
  const auto result = batcher.Step();
  CHECK_FALSE(result.ran);
  CHECK(result.next_wake == arrived + milliseconds(5));
  serving.clock.Advance(milliseconds(5));
  CHECK(batcher.Step().ran);
  CHECK(toy.answer->status().ok());
}

TEST_CASE("on CUDA a batch's tensors are set against the estimate of tensors, not that of the allocator's pieces", "[batcher]") {
  FakeDevice::Options options;
  options.kind = DeviceKind::kCuda;
  ToyServing serving(options);
  const auto model = serving.Serve(ToySpec());
  const ToyRequest toy = serving.Ask(*model, {Row(20)});
  Batcher batcher = serving.Worker();
  batcher.Step();
  const BatchReport report = serving.observer.batches().at(0);
  CHECK(report.actual == report.expected_tensors);
}

TEST_CASE("once the server ends no row waits for company", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  ModelSpec spec = ToySpec();
  spec.queue.max_delay = std::chrono::hours(1);
  const auto model = serving.Serve(spec);
  const ToyRequest toy = serving.Ask(*model, {Row(20)});
  Batcher batcher = serving.Worker();
  CHECK_FALSE(batcher.Step().ran);
  const std::uint64_t before = serving.work.count();
  serving.work.Hurry();
  CHECK(serving.work.count() > before);
  CHECK(batcher.Step().ran);
  CHECK(toy.answer->status().ok());
}

TEST_CASE("host memory that runs out fails its batch only, and all reservations are given back", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  int full = 2;  // once, and when it has been given the device to itself
  serving.device().on_outputs = [&](std::vector<HostTensor>&) {
    if (full-- > 0) throw std::bad_alloc();
  };
  const ToyRequest first = serving.Ask(*model, {Row(20)});
  Batcher batcher = serving.Worker();
  CHECK(batcher.Step().ran);
  CHECK(first.answer->status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(serving.budget().Snapshot().value().reserved == Bytes{0});
  const ToyRequest second = serving.Ask(*model, {Row(20)});
  CHECK(batcher.Step().ran);
  CHECK(second.answer->status().ok());
}

TEST_CASE("a large row that has long waited for a running batch's memory is not overtaken by other models' rows", "[batcher]") {
  ToyServing serving(Small());
  const auto large = serving.Serve(ToySpec("large"));
  const auto small = serving.Serve(ToySpec("small"));
  const ToyRequest big = serving.Ask(*large, {Row(512)});
  serving.clock.Advance(milliseconds(1));
  const ToyRequest little = serving.Ask(*small, {Row(20)});
  Batcher batcher = serving.Worker();
  {
    // A batch of another worker leaves room for a small row only.
    Reservation running = serving.budget().ReserveAvailable().value();
    running.Shrink(running.bytes() - KiB(300));
    CHECK(batcher.Step().ran);
    CHECK(little.answer->given());
    const ToyRequest next = serving.Ask(*small, {Row(20)});
    serving.clock.Advance(std::chrono::seconds(1));
    CHECK_FALSE(batcher.Step().ran);
    CHECK_FALSE(next.answer->given());
    DropWaiting(*small);
  }
  CHECK(batcher.Step().ran);
  CHECK(big.answer->status().ok());
}

TEST_CASE("an idle worker is told of what a claim leaves, of this model or another", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto one = serving.Serve(ToySpec("one"));
  const auto two = serving.Serve(ToySpec("two"));
  const ToyRequest first = serving.Ask(*one, {Row(20)});
  serving.clock.Advance(milliseconds(1));
  ToyRequest second;
  SECTION("this model") { second = serving.Ask(*one, {Row(500)}); }
  SECTION("another model") { second = serving.Ask(*two, {Row(20)}); }
  const std::uint64_t before = serving.work.count();
  std::uint64_t while_running = before;
  serving.device().during_run = [&](const PaddedBatch&) { while_running = serving.work.count(); };
  Batcher batcher = serving.Worker();
  CHECK(batcher.Step().ran);
  CHECK(while_running > before);
  CHECK(StepAll(batcher) == 1);
}

TEST_CASE("two devices pull from one queue", "[batcher]") {
  ToyServing serving;
  serving.AddDevice(Named("cuda:0"));
  serving.AddDevice(Named("cuda:1"));
  const auto model = serving.Serve(ToySpec());
  const ToyRequest one = serving.Ask(*model, {Row(20)});
  serving.clock.Advance(milliseconds(1));
  const ToyRequest two = serving.Ask(*model, {Row(500)});
  Batcher first = serving.Worker(0);
  Batcher second = serving.Worker(1);
  CHECK(first.Step().ran);
  CHECK(second.Step().ran);
  CHECK(serving.observer.batches()[0].device == "cuda:0");
  CHECK(serving.observer.batches()[1].device == "cuda:1");
  CHECK(one.answer->status().ok());
  CHECK(two.answer->status().ok());
}

TEST_CASE("a row too large for one device is left to the one that has room", "[batcher]") {
  ToyServing serving;
  serving.AddDevice(Named("cuda:0", KiB(1024 + 500)));
  serving.AddDevice(Named("cuda:1"));
  const auto model = serving.Serve(ToySpec());
  const ToyRequest toy = serving.Ask(*model, {Row(512)});
  Batcher small = serving.Worker(0);
  Batcher large = serving.Worker(1);
  CHECK_FALSE(small.Step().ran);
  CHECK_FALSE(toy.answer->given());
  CHECK(large.Step().ran);
  CHECK(toy.answer->status().ok());
}

TEST_CASE("a device's worker leaves alone what its device does not serve", "[batcher]") {
  ToyServing serving;
  serving.AddDevice(Named("cuda:0"));
  serving.AddDevice(Named("cuda:1"));
  const auto model = serving.Serve(ToySpec(), {1});
  const ToyRequest toy = serving.Ask(*model, {Row(20)});
  Batcher other = serving.Worker(0);
  CHECK_FALSE(other.Step().ran);
  // It may stop while they wait, too.
  std::stop_source stopped;
  stopped.request_stop();
  other.Run(stopped.get_token());
  Batcher own = serving.Worker(1);
  CHECK(own.Step().ran);
  CHECK(toy.answer->status().ok());
}

TEST_CASE("a stopped worker answers what waits before it ends", "[batcher]") {
  ToyServing serving(Small());
  ModelSpec spec = ToySpec();
  SECTION("at once") {}
  SECTION("where rows wait for company") { spec.queue.max_delay = milliseconds(7); }
  const auto model = serving.Serve(spec);
  std::vector<ToyRequest> asked;
  for (int i = 0; i < 20; ++i) asked.push_back(serving.Ask(*model, {Row(100 + i), Row(20)}));
  std::stop_source stopped;
  stopped.request_stop();
  serving.Worker().Run(stopped.get_token());
  for (const ToyRequest& toy : asked) CHECK(toy.answer->status().ok());
  CHECK(model->queue.rows_waiting() == 0);
}

TEST_CASE("a sleeping worker wakes for work and for the stop", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  Batcher batcher = serving.Worker();
  std::jthread worker([&](std::stop_token stop) { batcher.Run(std::move(stop)); });
  serving.clock.AwaitSleeperUntil(kForever);
  const ToyRequest toy = serving.Ask(*model, {{1, 2, 3}});
  CHECK(toy.answer->Floats() == std::vector<float>{3, 6, 32, 1});
}

TEST_CASE("many requests of several threads are answered right by several workers, and memory is kept", "[batcher][threads]") {
  constexpr int kWorkers = 4;
  constexpr int kClients = 3;
  constexpr int kRequests = 150;  // a client
  ToyServing serving;
  serving.AddDevice(Named("cuda:0", MiB(4)));
  serving.AddDevice(Named("cuda:1", MiB(8)));
  std::vector<std::shared_ptr<const ServedModel>> models;
  for (const char* name : {"one", "two"}) {
    ModelSpec spec = ToySpec(name);
    spec.queue.max_rows = 1 << 20;
    models.push_back(serving.Serve(spec));
  }
  const auto seed = std::random_device{}();
  CAPTURE(seed);

  struct Asked {
    ToyRequest toy;
    std::vector<Ids> rows;
    bool cancelled = false;
  };
  std::vector<std::vector<Asked>> asked(kClients);
  std::vector<Batcher> batchers;
  for (std::size_t i = 0; i < kWorkers; ++i) batchers.push_back(serving.Worker(i % 2));
  {
    // The time stands still: whoever sleeps until a time would sleep for ever, so that every wake-up must be a call.
    std::vector<std::jthread> workers;
    for (Batcher& batcher : batchers) {
      workers.emplace_back([&batcher](std::stop_token stop) { batcher.Run(std::move(stop)); });
    }
    std::vector<std::jthread> clients;
    for (unsigned client = 0; client < kClients; ++client) {
      clients.emplace_back([&, client] {
        std::mt19937_64 random(seed + client);
        for (int n = 0; n < kRequests; ++n) {
          Asked one;
          for (std::uint64_t rows = 1 + random() % 3; rows > 0; --rows) {
            one.rows.push_back(Row(1 + static_cast<std::int64_t>(random() % (random() % 4 == 0 ? 512 : 40)),
                                   static_cast<std::int64_t>(random() % 100)));
          }
          one.toy = serving.Ask(*models[random() % models.size()], one.rows);
          one.cancelled = random() % 20 == 0;
          if (one.cancelled) one.toy.request->Cancel();
          one.toy.request.reset();
          asked[client].push_back(std::move(one));
        }
      });
    }
  }

  int right = 0;
  int dropped = 0;
  for (const auto& of_client : asked) {
    for (const Asked& one : of_client) {
      REQUIRE(one.toy.answer->times() == 1);
      const Reply reply = one.toy.answer->Await();
      if (one.cancelled && reply.outcome == Outcome::kCancelled) {
        ++dropped;
        continue;
      }
      REQUIRE(reply.status.ok());
      const std::vector<float> told = one.toy.answer->Floats();
      for (std::size_t row = 0; row < one.rows.size(); ++row) {
        const auto length = static_cast<float>(one.rows[row].size());
        REQUIRE(told[4 * row] == length);
        REQUIRE(told[4 * row + 1] == length * static_cast<float>(one.rows[row][0]));
        REQUIRE(told[4 * row + 2] >= length);
      }
      ++right;
    }
  }
  CHECK(right + dropped == kClients * kRequests);
  CHECK(serving.observer.out_of_memory().empty());
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(serving.budget(i).Snapshot().value().reserved == Bytes{0});
    CHECK(serving.budget(i).Snapshot().value().peak <= serving.budget(i).idle_budget());
  }
}

TEST_CASE("models on a device take turns, however much waits for one of them", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto busy = serving.Serve(ToySpec("busy"));
  const auto quiet = serving.Serve(ToySpec("quiet"));
  for (int i = 0; i < 80; ++i) serving.Ask(*busy, {Row(32)});
  serving.clock.Advance(milliseconds(1));
  Batcher batcher = serving.Worker();
  batcher.Step();
  for (int i = 0; i < 16; ++i) serving.Ask(*quiet, {Row(32)});
  for (int i = 0; i < 5; ++i) batcher.Step();
  std::vector<std::string> order;
  for (const BatchReport& report : serving.observer.batches()) order.push_back(report.model);
  // `quiet` does not have to wait for the older rows of `busy`.
  CHECK(order == std::vector<std::string>{"busy", "quiet", "busy", "quiet", "busy", "busy"});
  DropWaiting(*busy);
}

TEST_CASE("a row whose time is up while another has the device to itself does not start", "[batcher]") {
  ToyServing serving(FakeDevice::Options{});
  const auto model = serving.Serve(ToySpec());
  const ToyRequest late = serving.Ask(*model, {Row(20)}, {.deadline = serving.clock.Now() + milliseconds(50)});
  const ToyRequest patient = serving.Ask(*model, {Row(9)});
  Batcher batcher = serving.Worker();
  std::optional<RunPass> alone = serving.serving_device().gate.EnterAlone();
  std::thread worker([&] { batcher.Step(); });
  while (model->queue.rows_waiting() > 0) std::this_thread::yield();
  serving.clock.Advance(milliseconds(60));
  alone.reset();
  worker.join();
  CHECK(late.answer->status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(patient.answer->Floats() == std::vector<float>{9, 9, 32, 1});
  const auto batches = serving.observer.batches();
  REQUIRE(batches.size() == 1);
  CHECK(batches[0].rows == 1);
  CHECK(batches[0].waits == std::vector<Duration>{milliseconds(60)});
}

}  // namespace
}  // namespace headroom
