#include "server/fragment_release.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "test/fakes/fake_device.h"

namespace headroom {
namespace {

using std::chrono::seconds;

TEST_CASE("when cached memory is worth giving back", "[fragment_release]") {
  struct Case {
    std::string what;
    Bytes held, allocated, unusable;
    int idle_seconds;
    bool worth;
  };
  // Of a device of 10 GiB.
  const std::vector<Case> cases = {
      {"nothing held", MiB(0), MiB(0), MiB(0), 60, false},
      {"nothing cached", GiB(2), GiB(2), MiB(0), 60, false},
      {"cached whole, in moderation", GiB(6), GiB(1), MiB(0), 60, false},
      {"cached whole, more than half of the device", MiB(6200), MiB(1000), MiB(0), 60, true},
      {"split by a tenth", MiB(2000), MiB(1000), MiB(200), 60, false},
      {"split by more than a tenth", MiB(2000), MiB(1000), MiB(201), 60, true},
      {"split, but traffic only pauses", MiB(2000), MiB(1000), MiB(500), 4, false},
      {"split, at the end of the pause", MiB(2000), MiB(1000), MiB(500), 5, true},
      {"split, but little in all", MiB(200), MiB(137), MiB(60), 60, false},
      {"split, just enough", MiB(200), MiB(136), MiB(60), 60, true},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    const DeviceMemory memory{.total = GiB(10), .held = c.held, .allocated = c.allocated, .unusable = c.unusable};
    CHECK(WorthGivingBack(memory, seconds(c.idle_seconds), {}) == c.worth);
  }
}

// One device that caches too much, looked at once a second.
class Resting {
 public:
  Resting() {
    FakeDevice::Options options;
    options.total = GiB(1);
    device_.device = std::make_unique<FakeDevice>(options);
    device_.budget = std::make_unique<MemoryBudget>(*device_.device, 0.8);
    Fragment();
  }

  void Fragment() { fake().SetCached(MiB(600)); }
  void Look(bool at_rest, std::int64_t calls) {
    time_ += seconds(1);
    task_.Look({time_, calls, std::nullopt, {{&device_, device_.device->Memory().value(), at_rest}}});
  }
  int emptied() { return fake().caches_emptied(); }

 private:
  FakeDevice& fake() { return static_cast<FakeDevice&>(*device_.device); }

  ServingDevice device_;
  FragmentRelease task_;
  TimePoint time_{std::chrono::hours(1)};
};

TEST_CASE("a cache is emptied once nothing has run for five seconds", "[fragment_release]") {
  Resting resting;
  for (int i = 0; i < 5; ++i) resting.Look(true, 7);
  CHECK(resting.emptied() == 0);
  resting.Look(true, 7);
  CHECK(resting.emptied() == 1);
}

TEST_CASE("once in each time of rest", "[fragment_release]") {
  Resting resting;
  for (int i = 0; i < 30; ++i) {
    resting.Look(true, 7);
    resting.Fragment();  // as if emptying had helped nothing
  }
  CHECK(resting.emptied() == 1);
  resting.Look(true, 8);
  for (int i = 0; i < 30; ++i) resting.Look(true, 8);
  CHECK(resting.emptied() == 2);
}

TEST_CASE("not while batches run or calls come", "[fragment_release]") {
  Resting resting;
  for (int i = 0; i < 30; ++i) resting.Look(i % 4 != 0, 7);
  for (int i = 0; i < 30; ++i) resting.Look(true, i);
  CHECK(resting.emptied() == 0);
}

}  // namespace
}  // namespace headroom
