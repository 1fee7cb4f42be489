#include "memory/memory_budget.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "runtime/sample_batch.h"
#include "test/fakes/fake_device.h"
#include "test/fakes/toy_request.h"

namespace headroom {
namespace {

// A device that tells whatever figures a test wants.
class ToldDevice final : public Device {
 public:
  DeviceMemory memory;
  Bytes limit{0};
  int peaks_reset = 0;

  const std::string& name() const override { return name_; }
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  bool computes() const override { return true; }
  std::string fingerprint() const override { return ""; }
  absl::StatusOr<std::shared_ptr<const LoadedModel>> Load(const std::filesystem::path&, const ModelSpec&) override {
    return absl::UnimplementedError("only tells its memory");
  }
  std::int64_t loads() const override { return 0; }
  RunResult Run(const LoadedModel&, const PaddedBatch&) override { return DeviceLost{}; }
  RunResult Probe(const LoadedModel&, const PaddedBatch&, Bytes) override { return DeviceLost{}; }
  absl::StatusOr<DeviceMemory> Memory() const override { return memory; }
  void ResetPeak() override { ++peaks_reset; }
  void EmptyCache() override {}
  void LimitHeld(Bytes bytes) override { limit = bytes; }
  HostBuffer AllocateStaging(Bytes size) override { return AllocateHost(size); }

 private:
  const std::string name_ = "cuda:0";
};

TEST_CASE("available is the share of what batches could use together", "[budget]") {
  // At rest, 100 are held of 1000 on an otherwise empty device.
  struct Case {
    const char* what;
    std::int64_t free, held, unusable;
    double fraction;
    std::int64_t available;
  };
  const auto c = GENERATE(values<Case>({
      {"at rest", 900, 100, 0, 0.8, 720},
      {"all of it", 900, 100, 0, 1.0, 900},
      {"a batch's cached memory counts as free", 600, 400, 0, 0.8, 720},
      {"except what is split around live memory", 600, 400, 50, 0.8, 680},
      {"a neighbour takes 300", 600, 100, 0, 0.8, 480},
      {"a neighbour has taken all", 0, 100, 0, 0.8, 0},
      {"never below nothing", 0, 80, 0, 0.8, 0},
      {"rounded down", 901, 100, 0, 0.5, 450},
  }));
  CAPTURE(c.what);
  ToldDevice device;
  device.memory = {.total = Bytes{1000}, .free = Bytes{900}, .held = Bytes{100}, .allocated = Bytes{100}};
  MemoryBudget budget(device, c.fraction);
  REQUIRE(budget.MarkAtRest().ok());
  device.memory.free = Bytes{c.free};
  device.memory.held = Bytes{c.held};
  device.memory.unusable = Bytes{c.unusable};
  CHECK(budget.ReserveAvailable().value().bytes() == Bytes{c.available});
  CHECK(budget.Snapshot().value().budget == Bytes{c.available});
}

TEST_CASE("marking rest empties the cache, starts the peak anew and sets the hard limit", "[budget]") {
  FakeDevice device({.total = MiB(100), .weights = MiB(20)});
  const auto model = device.Load("model.pt", ToySpec()).value();
  device.SetCached(MiB(30));
  MemoryBudget budget(device, 0.8);
  REQUIRE(budget.MarkAtRest().ok());
  CHECK(device.caches_emptied() == 1);
  CHECK(budget.idle_budget() == MiB(64));
  CHECK(device.limit() == MiB(84));  // 20 at rest + 0.8 × 80
  CHECK(budget.Snapshot().value().peak == Bytes{0});
}

TEST_CASE("the hard limit counts a neighbour, the idle budget does not", "[budget]") {
  FakeDevice device({.total = MiB(100), .weights = MiB(20)});
  device.SetNeighbour(MiB(30));
  MemoryBudget budget(device, 0.8);
  REQUIRE(budget.MarkAtRest().ok());
  CHECK(budget.idle_budget() == MiB(80));
  CHECK(device.limit() == MiB(56));
}

TEST_CASE("what is held at rest beyond the tensors can be used by batches", "[budget]") {
  ToldDevice device;
  device.memory = {.total = Bytes{1000}, .free = Bytes{800}, .held = Bytes{200}, .allocated = Bytes{150}};
  MemoryBudget budget(device, 0.8);
  REQUIRE(budget.MarkAtRest().ok());
  CHECK(budget.idle_budget() == Bytes{680});
  CHECK(device.limit == Bytes{200 + 680});
  CHECK(budget.ReserveAvailable().value().bytes() == Bytes{680});
  CHECK(budget.Snapshot().value().peak == Bytes{0});
}

TEST_CASE("the hard limit is raised when a neighbour leaves, and not by what our own cache holds", "[budget]") {
  ToldDevice device;
  device.memory = {.total = Bytes{1000}, .free = Bytes{500}, .held = Bytes{100}, .allocated = Bytes{100}};
  MemoryBudget budget(device, 0.8);
  REQUIRE(budget.MarkAtRest().ok());
  CHECK(device.limit == Bytes{100 + 400});
  device.memory.free = Bytes{200};  // a batch's memory stays cached
  device.memory.held = Bytes{400};
  CHECK(budget.ReserveAvailable().ok());
  CHECK(device.limit == Bytes{100 + 400});
  device.memory.free = Bytes{400};  // a neighbour leaves some, takes it again, and leaves
  CHECK(budget.ReserveAvailable().ok());
  CHECK(device.limit == Bytes{100 + 560});
  device.memory.free = Bytes{200};
  CHECK(budget.ReserveAvailable().ok());
  CHECK(device.limit == Bytes{100 + 560});  // never lowered under running batches
  device.memory.free = Bytes{600};
  CHECK(budget.ReserveAvailable().ok());
  CHECK(device.limit == Bytes{100 + 720});
}

TEST_CASE("a reservation knows the whole budget of its time", "[budget]") {
  FakeDevice device({.total = MiB(100)});
  MemoryBudget budget(device, 0.8);
  REQUIRE(budget.MarkAtRest().ok());
  Reservation first = budget.ReserveAvailable().value();
  CHECK(first.budget() == MiB(80));
  Reservation second = budget.ReserveAvailable().value();
  CHECK(second.bytes() == Bytes{0});
  CHECK(second.budget() == MiB(80));
  first = std::move(second);
  CHECK(first.budget() == MiB(80));
}

TEST_CASE("a reservation leaves the rest to others and gives its bytes back when it goes", "[budget]") {
  FakeDevice device({.total = MiB(100)});
  MemoryBudget budget(device, 0.8);
  REQUIRE(budget.MarkAtRest().ok());
  {
    Reservation first = budget.ReserveAvailable().value();
    CHECK(first.bytes() == MiB(80));
    CHECK(budget.ReserveAvailable().value().bytes() == Bytes{0});
    first.Shrink(MiB(30));
    CHECK(first.bytes() == MiB(30));
    CHECK(budget.Snapshot().value().reserved == MiB(30));
    const Reservation second = budget.ReserveAvailable().value();
    CHECK(second.bytes() == MiB(50));
    first.Shrink(MiB(40));  // never grows
    CHECK(first.bytes() == MiB(30));
    CHECK(budget.Snapshot().value().reserved == MiB(80));
  }
  CHECK(budget.Snapshot().value().reserved == Bytes{0});
}

TEST_CASE("a moved reservation is held once", "[budget]") {
  FakeDevice device({.total = MiB(100)});
  MemoryBudget budget(device, 0.8);
  REQUIRE(budget.MarkAtRest().ok());
  Reservation kept;
  {
    Reservation made = budget.ReserveAvailable().value();
    made.Shrink(MiB(10));
    Reservation moved(std::move(made));
    CHECK(moved.bytes() == MiB(10));
    kept = std::move(moved);
  }
  CHECK(budget.Snapshot().value().reserved == MiB(10));
  // What an assignment replaces is given back.
  Reservation other = budget.ReserveAvailable().value();
  other.Shrink(MiB(5));
  kept = std::move(other);
  CHECK(kept.bytes() == MiB(5));
  CHECK(budget.Snapshot().value().reserved == MiB(5));
  kept = Reservation();
  CHECK(budget.Snapshot().value().reserved == Bytes{0});
}

TEST_CASE("a device that does not tell its memory is an error, never nothing", "[budget]") {
  FakeDevice device({.total = MiB(100)});
  MemoryBudget budget(device, 0.8);
  REQUIRE(budget.MarkAtRest().ok());
  device.FailMemoryAfter(1);
  CHECK(budget.ReserveAvailable().ok());
  CHECK(budget.ReserveAvailable().status().code() == absl::StatusCode::kInternal);
  CHECK(budget.Snapshot().status().code() == absl::StatusCode::kInternal);
  CHECK(budget.MarkAtRest().code() == absl::StatusCode::kInternal);
  CHECK(budget.idle_budget() == MiB(80));  // what was known stays known
}

TEST_CASE("the peak is what batches held at once beyond rest", "[budget]") {
  FakeDevice device({.total = MiB(100), .weights = MiB(20)});
  const auto model = device.Load("model.pt", ToySpec()).value();
  MemoryBudget budget(device, 0.8);
  REQUIRE(budget.MarkAtRest().ok());
  // 64 KiB + 4 × 32 KiB, and the cache does not count.
  const PaddedBatch batch = SampleBatch(ToySpec(), {4, 32}, device, /*seed=*/1);
  CHECK(std::holds_alternative<RunOutput>(device.Run(*model, batch)));
  CHECK(budget.Snapshot().value().peak == KiB(64 + 4 * 32));
  REQUIRE(budget.MarkAtRest().ok());
  CHECK(budget.Snapshot().value().peak == Bytes{0});
}

TEST_CASE("reservations of many threads never pass the budget together", "[budget][property]") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  FakeDevice device({.total = MiB(100)});
  MemoryBudget budget(device, 0.8);
  REQUIRE(budget.MarkAtRest().ok());
  std::atomic<std::int64_t> together = 0;
  std::atomic<int> passed = 0;
  std::atomic<int> got = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937_64 random(seed + thread);
        for (int n = 0; n < 2000; ++n) {
          Reservation reservation = budget.ReserveAvailable().value();
          const Bytes all = reservation.bytes();
          if (all.count == 0) continue;
          // Counted before the shrinking, when the most is held.
          if ((together += all.count) > MiB(80).count) ++passed;
          ++got;
          const Bytes part{static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(all.count))};
          together -= (all - part).count;
          reservation.Shrink(part);
          Reservation moved = std::move(reservation);
          together -= part.count;
        }
      });
    }
  }
  CHECK(passed == 0);
  CHECK(got > 0);
  CHECK(budget.Snapshot().value().reserved == Bytes{0});
}

}  // namespace
}  // namespace headroom
