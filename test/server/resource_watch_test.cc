#include "server/resource_watch.h"

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/fakes/fake_device.h"
#include "test/fakes/manual_clock.h"
#include "test/fakes/recording_observer.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;

class KeepReadings final : public WatchTask {
 public:
  void Look(const ResourceReading& reading) override {
    MutexLock lock(mutex_);
    readings_.push_back(reading);
  }
  std::vector<ResourceReading> readings() const {
    MutexLock lock(mutex_);
    return readings_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<ResourceReading> readings_;
};

// Two devices under a watch.
struct Watched {
  Watched() {
    for (const char* const name : {"cuda:0", "cuda:1"}) {
      FakeDevice::Options options;
      options.name = name;
      auto serving = std::make_unique<ServingDevice>();
      serving->device = std::make_unique<FakeDevice>(options);
      serving->budget = std::make_unique<MemoryBudget>(*serving->device, 0.8);
      REQUIRE(serving->budget->MarkAtRest().ok());
      devices.push_back(std::move(serving));
    }
  }

  FakeDevice& fake(std::size_t index) { return static_cast<FakeDevice&>(*devices[index]->device); }

  std::vector<std::unique_ptr<ServingDevice>> devices;
  RecordingObserver observer;
  ManualClock clock;
  std::int64_t calls = 0;
  absl::StatusOr<ProcessMemory> process = ProcessMemory{MiB(300), MiB(100)};
  KeepReadings first;
  KeepReadings second;
  ResourceWatch watch{{devices, observer, clock, [this] { return calls; }, [this] { return process; }, {&first, &second}}};
};

TEST_CASE("each step looks once and shows it to every task", "[resource_watch]") {
  Watched watched;
  watched.calls = 17;
  CHECK(watched.watch.Step() == watched.clock.Now() + milliseconds(500));
  REQUIRE(watched.first.readings().size() == 1);
  REQUIRE(watched.second.readings().size() == 1);
  const ResourceReading reading = watched.first.readings()[0];
  CHECK(reading.time == watched.clock.Now());
  CHECK(reading.calls == 17);
  CHECK(reading.process->own == MiB(100));
  REQUIRE(reading.devices.size() == 2);
  CHECK(reading.devices[1].on == watched.devices[1].get());
  CHECK(reading.devices[1].memory.total == MiB(64));
  CHECK(watched.observer.lost().empty());
}

TEST_CASE("a device is at rest while no batch has a reservation on it", "[resource_watch]") {
  Watched watched;
  {
    const Reservation running = watched.devices[0]->budget->ReserveAvailable().value();
    watched.watch.Step();
  }
  watched.watch.Step();
  const std::vector<ResourceReading> readings = watched.first.readings();
  CHECK_FALSE(readings[0].devices[0].at_rest);
  CHECK(readings[0].devices[1].at_rest);
  CHECK(readings[1].devices[0].at_rest);
}

TEST_CASE("a device that does not tell its memory is reported lost, once", "[resource_watch]") {
  Watched watched;
  watched.watch.Step();
  watched.fake(1).FailMemoryAfter(1);
  watched.watch.Step();
  CHECK(watched.observer.lost().empty());
  watched.watch.Step();
  using Lost = std::vector<std::pair<std::string, std::string>>;
  CHECK(watched.observer.lost() == Lost{{"cuda:1", "the device does not answer"}});
  watched.watch.Step();
  CHECK(watched.observer.lost().size() == 1);
  CHECK(watched.first.readings().back().devices.size() == 1);
}

TEST_CASE("without figures of the process the devices are watched all the same", "[resource_watch]") {
  Watched watched;
  watched.process = absl::InternalError("no /proc");
  watched.watch.Step();
  CHECK_FALSE(watched.first.readings()[0].process.has_value());
  CHECK(watched.first.readings()[0].devices.size() == 2);
}

TEST_CASE("a watch of no devices asks none, and shows the time to its tasks", "[resource_watch]") {
  Watched watched;
  const std::vector<std::unique_ptr<ServingDevice>> none;
  watched.fake(0).FailMemoryAfter(0);
  ResourceWatch watch({none,
                       watched.observer,
                       watched.clock,
                       [] { return std::int64_t{0}; },
                       [] { return absl::UnavailableError("not asked for"); },
                       {&watched.first}});
  watch.Step();
  CHECK(watched.observer.lost().empty());
  REQUIRE(watched.first.readings().size() == 1);
  CHECK(watched.first.readings()[0].time == watched.clock.Now());
}

TEST_CASE("a watch looks every half second until it is stopped", "[resource_watch]") {
  Watched watched;
  {
    const std::jthread thread([&](const std::stop_token& stop) { watched.watch.Run(stop); });
    for (std::size_t looks = 1; looks <= 3; ++looks) {
      watched.clock.AwaitSleeperUntil(watched.clock.Now() + milliseconds(500));
      CHECK(watched.first.readings().size() == looks);
      watched.clock.Advance(milliseconds(499));
      watched.clock.Advance(milliseconds(1));
    }
    watched.clock.AwaitSleeperUntil(watched.clock.Now() + milliseconds(500));
  }
  CHECK(watched.first.readings().size() == 4);
}

}  // namespace
}  // namespace headroom
