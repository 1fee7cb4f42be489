#include "base/log.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "base/sync.h"

namespace headroom {
namespace {

// Installs a sink for a test, and none after it.
class CapturedLog {
 public:
  CapturedLog() {
    SetLogSink([this](const LogEvent& event) {
      MutexLock lock(mutex_);
      events_.push_back(event);
    });
  }
  ~CapturedLog() { SetLogSink(nullptr); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  std::vector<LogEvent> events() const {
    MutexLock lock(mutex_);
    return events_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<LogEvent> events_ GUARDED_BY(mutex_);
};

TEST_CASE("an event goes nowhere without a sink", "[log]") {
  SetLogSink(nullptr);
  Log(LogLevel::kError, "nobody hears this", {{"rows", 1}});
}

TEST_CASE("the sink gets level, message and fields in order", "[log]") {
  const CapturedLog log;
  Log(LogLevel::kWarning, "out of memory",
      {{"model", "minilm"},
       {"rows", 8},
       {"share", 0.5},
       {"bytes", KiB(2)},
       {"text", std::string("a b")},
       {"size", std::size_t{3}}});
  const auto events = log.events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].level == LogLevel::kWarning);
  CHECK(events[0].message == "out of memory");
  struct Field {
    std::string name;
    std::string text;
    bool is_number;
  };
  const std::vector<Field> wanted = {{"model", "minilm", false}, {"rows", "8", true},    {"share", "0.500000", true},
                                     {"bytes", "2048", true},    {"text", "a b", false}, {"size", "3", true}};
  REQUIRE(events[0].fields.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    CHECK(events[0].fields[i].first == wanted[i].name);
    CHECK(events[0].fields[i].second.text == wanted[i].text);
    CHECK(events[0].fields[i].second.is_number == wanted[i].is_number);
  }
}

TEST_CASE("threads log while the sink is replaced", "[log]") {
  const CapturedLog log;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([] {
        for (int n = 0; n < 200; ++n) Log(LogLevel::kInfo, "tick", {{"n", n}});
      });
    }
    for (int n = 0; n < 50; ++n) SetLogSink([](const LogEvent&) {});
  }
  CHECK(log.events().size() <= 600);
}

}  // namespace
}  // namespace headroom
