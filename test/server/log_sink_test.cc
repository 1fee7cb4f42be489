#include "server/log_sink.h"

#include <absl/strings/str_split.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace headroom {
namespace {

class Pipe {
 public:
  Pipe() {
    REQUIRE(::pipe(ends_.data()) == 0);
    REQUIRE(::fcntl(ends_[0], F_SETFL, O_NONBLOCK) == 0);
  }
  ~Pipe() {
    CloseReader();
    ::close(ends_[1]);
  }

  int writer() const { return ends_[1]; }
  void CloseReader() {
    if (ends_[0] >= 0) ::close(ends_[0]);
    ends_[0] = -1;
  }
  // What can be read now.
  std::string Read() {
    std::string text;
    std::array<char, 4096> piece{};
    for (ssize_t got = 0; (got = ::read(ends_[0], piece.data(), piece.size())) > 0;) {
      text.append(piece.data(), static_cast<std::size_t>(got));
    }
    return text;
  }

 private:
  std::array<int, 2> ends_{};
};

std::string LineOf(LogFormat format, const LogEvent& event) {
  Pipe pipe;
  MakeLogSink(format, LogLevel::kDebug, pipe.writer())(event);
  std::string line = pipe.Read();
  REQUIRE(!line.empty());
  REQUIRE(line.back() == '\n');
  line.pop_back();
  REQUIRE(line.find('\n') == std::string::npos);
  return line;
}

// A text line less its time, whose form is checked.
std::string TextOf(const LogEvent& event) {
  const std::string line = LineOf(LogFormat::kText, event);
  constexpr std::size_t kTimeLength = std::char_traits<char>::length("2024-05-01T12:00:00.000Z");
  REQUIRE(line.size() > kTimeLength);
  CHECK(line[4] == '-');
  CHECK(line[10] == 'T');
  CHECK(line[kTimeLength - 1] == 'Z');
  return line.substr(kTimeLength + 1);
}

TEST_CASE("text lines quote only what would be misread", "[log]") {
  const auto line = [](LogValue value) { return TextOf({LogLevel::kInfo, "event", {{"field", std::move(value)}}}); };
  CHECK(line("plain") == "info    event field=plain");
  CHECK(line("127.0.0.1:8001") == "info    event field=127.0.0.1:8001");
  CHECK(line(7) == "info    event field=7");
  CHECK(line(MiB(1)) == "info    event field=1048576");
  CHECK(line("") == "info    event field=\"\"");
  CHECK(line("two words") == "info    event field=\"two words\"");
  CHECK(line("a=b") == "info    event field=\"a=b\"");
  CHECK(line("say \"x\"") == "info    event field=\"say \\\"x\\\"\"");
  CHECK(line("süß") == "info    event field=süß");
}

TEST_CASE("text lines name the level and keep the fields' order", "[log]") {
  CHECK(TextOf({LogLevel::kDebug, "a b", {{"z", 1}, {"a", 2}}}) == "debug   a b z=1 a=2");
  CHECK(TextOf({LogLevel::kWarning, "w", {}}) == "warning w");
  CHECK(TextOf({LogLevel::kError, "e", {}}) == "error   e");
  CHECK(TextOf({LogLevel::kInfo, "percent %v {}", {}}) == "info    percent %v {}");
}

TEST_CASE("nothing that is logged can end a line or steer a terminal", "[log]") {
  const std::string evil = "a\nb\r\x1b[31m\x7f\xc2\x9b";
  CHECK(TextOf({LogLevel::kInfo, evil, {}}) == R"(info    a\nb\x0d\x1b[31m\x7f\x9b)");
  CHECK(TextOf({LogLevel::kInfo, "m", {{"id", evil}}}) == R"(info    m id="a\nb\x0d\x1b[31m\x7f\x9b")");
  CHECK(LineOf(LogFormat::kJson, {LogLevel::kInfo, evil, {}}).find('\x1b') == std::string::npos);
}

TEST_CASE("JSON lines are objects whose numbers are numbers", "[log]") {
  const auto object = nlohmann::json::parse(LineOf(
      LogFormat::kJson,
      {LogLevel::kWarning,
       "batch \"split\"",
       {{"rows", 12}, {"ratio", 0.5}, {"name", "12"}, {"nan", std::numeric_limits<double>::quiet_NaN()}, {"bytes", MiB(2)}}}));
  CHECK(object["level"] == "warning");
  CHECK(object["message"] == "batch \"split\"");
  CHECK(object["rows"] == 12);
  CHECK(object["ratio"] == 0.5);
  CHECK(object["name"] == "12");
  CHECK(object["nan"] == "nan");
  CHECK(object["bytes"] == 2097152);
  CHECK(object["time"].get<std::string>().size() == std::string("2024-05-01T12:00:00.000Z").size());
}

TEST_CASE("JSON lines stay valid whatever bytes are logged", "[log]") {
  const auto object = nlohmann::json::parse(LineOf(LogFormat::kJson, {LogLevel::kInfo, "bad \xff\xfe bytes\n", {}}));
  CHECK(object["message"] == "bad \uFFFD\uFFFD bytes\n");
}

TEST_CASE("events below the level are left out", "[log]") {
  Pipe pipe;
  const LogSink sink = MakeLogSink(LogFormat::kText, LogLevel::kWarning, pipe.writer());
  sink({LogLevel::kDebug, "one", {}});
  sink({LogLevel::kInfo, "two", {}});
  CHECK(pipe.Read().empty());
  sink({LogLevel::kWarning, "three", {}});
  sink({LogLevel::kError, "four", {}});
  CHECK(pipe.Read().find("three") != std::string::npos);
}

TEST_CASE("a closed descriptor or a reader that has left is survived", "[log]") {
  Pipe pipe;
  const LogSink sink = MakeLogSink(LogFormat::kText, LogLevel::kInfo, pipe.writer());
  pipe.CloseReader();
  for (int i = 0; i < 3; ++i) sink({LogLevel::kError, "to nobody", {}});
  MakeLogSink(LogFormat::kText, LogLevel::kInfo, -1)({LogLevel::kError, "to nothing", {}});
}

TEST_CASE("a reader that has stopped loses lines, is told how many, and holds nobody up", "[log]") {
  Pipe pipe;
  const LogSink sink = MakeLogSink(LogFormat::kText, LogLevel::kInfo, pipe.writer());
  const std::string filler(1000, 'x');
  constexpr int kLines = 1000;  // far more than a pipe's 64 KiB
  for (int i = 0; i < kLines; ++i) sink({LogLevel::kInfo, filler, {}});

  const std::string kept = pipe.Read();
  const auto lines = std::count(kept.begin(), kept.end(), '\n');
  CHECK(lines > 10);
  sink({LogLevel::kInfo, "awake", {}});
  const std::vector<std::string> after = absl::StrSplit(pipe.Read(), '\n', absl::SkipEmpty());
  REQUIRE(after.size() == 2);
  CHECK(after[0].find("warning log lines were lost because nobody read them lines=" + std::to_string(kLines - lines)) !=
        std::string::npos);
  CHECK(after[1].find("awake") != std::string::npos);
}

TEST_CASE("a line longer than a pipe's page arrives whole", "[log]") {
  Pipe pipe;
  MakeLogSink(LogFormat::kText, LogLevel::kInfo, pipe.writer())({LogLevel::kInfo, std::string(20'000, 'y'), {}});
  const std::string line = pipe.Read();
  CHECK(std::count(line.begin(), line.end(), 'y') == 20'000);
  CHECK(std::count(line.begin(), line.end(), '\n') == 1);
}

TEST_CASE("lines of several threads do not mix", "[log]") {
  Pipe pipe;
  const LogSink sink = MakeLogSink(LogFormat::kJson, LogLevel::kInfo, pipe.writer());
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) sink({LogLevel::kInfo, "line", {{"i", i}}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> lines = absl::StrSplit(pipe.Read(), '\n', absl::SkipEmpty());
  CHECK(lines.size() == 200);
  for (const std::string& line : lines) CHECK(nlohmann::json::accept(line));
}

}  // namespace
}  // namespace headroom
