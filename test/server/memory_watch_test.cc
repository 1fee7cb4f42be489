#include "server/memory_watch.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "test/fakes/fake_device.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;

// What is logged while it lives.
class KeepLog {
 public:
  KeepLog() {
    SetLogSink([this](const LogEvent& event) { events_.push_back(event); });
  }
  ~KeepLog() { SetLogSink(nullptr); }
  KeepLog(const KeepLog&) = delete;
  KeepLog& operator=(const KeepLog&) = delete;

  std::vector<LogEvent> With(const std::string& words) const {
    std::vector<LogEvent> found;
    std::copy_if(events_.begin(), events_.end(), std::back_inserter(found),
                 [&](const LogEvent& event) { return event.message.find(words) != std::string::npos; });
    return found;
  }

 private:
  std::vector<LogEvent> events_;
};

std::string FieldOf(const LogEvent& event, const std::string& name) {
  for (const auto& [field, value] : event.fields) {
    if (field == name) return value.text;
  }
  return "";
}

// A CPU of 1 GiB and a process, looked at each half second.
class Looks {
 public:
  Looks() {
    device_.device = std::make_unique<FakeDevice>();
    device_.budget = std::make_unique<MemoryBudget>(*device_.device, 0.8);
  }

  void Look(std::int64_t more_calls, Bytes allocated, Bytes own) {
    time_ += milliseconds(500);
    calls_ += more_calls;
    const DeviceMemory memory{
        .total = GiB(1), .free = GiB(1) - allocated, .held = allocated, .allocated = allocated, .unusable = {}, .peak_held = {}};
    watch_.Look({time_, calls_, ProcessMemory{own + MiB(200), own}, {{&device_, memory, true}}});
  }

  MemoryFigures figures() const { return watch_.Figures(); }
  MemorySeries Of(const std::string& device, const std::string& memory) const {
    for (const MemorySeries& series : watch_.Figures().series) {
      if (series.device == device && series.memory == memory) return series;
    }
    FAIL("no series " << device << " " << memory);
    return {};
  }

  absl::StatusOr<Bytes> host_left = GiB(1);
  int host_asked = 0;

 private:
  ServingDevice device_;
  MemoryWatch watch_{[this] {
    ++host_asked;
    return host_left;
  }};
  TimePoint time_{std::chrono::hours(1)};
  std::int64_t calls_ = 0;
};

TEST_CASE("the first look is the baseline, and is logged", "[memory_watch]") {
  const KeepLog log;
  Looks looks;
  looks.Look(0, MiB(10), MiB(100));
  looks.Look(1, MiB(11), MiB(103));
  CHECK(looks.Of("cpu", "allocated").baseline == MiB(10));
  CHECK(looks.Of("cpu", "held").baseline == MiB(10));
  CHECK(looks.Of("host", "resident").baseline == MiB(100));
  CHECK(looks.figures().process->resident == MiB(303));
  const std::vector<LogEvent> said = log.With("baseline");
  REQUIRE(said.size() == 3);
  CHECK(FieldOf(said[2], "memory") == "resident");
  CHECK(FieldOf(said[2], "bytes") == std::to_string(MiB(100).count));
}

TEST_CASE("memory at rest is the least of ten seconds", "[memory_watch]") {
  Looks looks;
  looks.Look(1, MiB(10), MiB(100));
  for (int i = 0; i < 19; ++i) looks.Look(1, MiB(50), MiB(150));
  CHECK(looks.Of("cpu", "allocated").at_rest == MiB(10));
  looks.Look(1, MiB(40), MiB(140));
  CHECK(looks.Of("cpu", "allocated").at_rest == MiB(40));
  CHECK(looks.Of("host", "resident").at_rest == MiB(140));
}

TEST_CASE("nothing is said of leaks and of the time left before enough has been seen", "[memory_watch]") {
  Looks looks;
  for (int i = 0; i < 30; ++i) looks.Look(5000, MiB(10), MiB(100));
  CHECK_FALSE(looks.Of("host", "resident").leak.has_value());
  CHECK(looks.figures().exhaustion.empty());
}

TEST_CASE("without a leak memory lasts for ever, and the host is not asked", "[memory_watch]") {
  const KeepLog log;
  Looks looks;
  for (int i = 0; i < 60; ++i) looks.Look(5000, MiB(10), MiB(100));
  CHECK_FALSE(looks.Of("host", "resident").leak->leaking);
  CHECK(looks.figures().exhaustion.at("cpu") == MemoryFigures::kNever);
  CHECK(looks.figures().exhaustion.at("host") == MemoryFigures::kNever);
  CHECK(looks.host_asked == 0);
  CHECK(log.With("leak").empty());
}

TEST_CASE("a leak of the process is told once an hour, with the time that is left", "[memory_watch]") {
  const KeepLog log;
  Looks looks;
  Bytes own = MiB(100);
  const auto look = [&] { looks.Look(5000, MiB(10), own += Bytes{5000 * 64}); };
  for (int i = 0; i < 60; ++i) look();
  const MemorySeries resident = looks.Of("host", "resident");
  CHECK(resident.leak->leaking);
  CHECK(resident.leak->bytes_per_call == Approx(64));
  // 1 GiB at 640,000 bytes a second.
  CHECK(looks.figures().exhaustion.at("host") == Approx(1073741824.0 / 640'000));
  CHECK(looks.figures().exhaustion.at("cpu") == MemoryFigures::kNever);
  REQUIRE(log.With("leak").size() == 1);
  CHECK(FieldOf(log.With("leak")[0], "memory") == "resident");
  CHECK(log.With("leak")[0].level == LogLevel::kWarning);

  for (int i = 0; i < 7100; ++i) look();
  CHECK(log.With("leak").size() == 1);
  for (int i = 0; i < 100; ++i) look();
  CHECK(log.With("leak").size() == 2);

  looks.host_left = absl::InternalError("not told");
  look();
  CHECK_FALSE(looks.figures().exhaustion.contains("host"));
}

TEST_CASE("a leak of the device is measured against what it has left", "[memory_watch]") {
  Looks looks;
  Bytes allocated = MiB(10);
  for (int i = 0; i < 60; ++i) looks.Look(5000, allocated += Bytes{5000 * 64}, MiB(100));
  CHECK(looks.Of("cpu", "allocated").leak->leaking);
  const double left = static_cast<double>((GiB(1) - looks.Of("cpu", "allocated").at_rest).count);
  CHECK(looks.figures().exhaustion.at("cpu") == Approx(left / 640'000));
}

}  // namespace
}  // namespace headroom
