#include "server/log_sink.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>

namespace headroom {
namespace {

// spdlog fills in time and level, and what an event makes of itself (Payload) takes the place of %v.
constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%eZ %-7l %v";
constexpr const char* kJsonPattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";

// Escapes control characters, C1 controls in their UTF-8 form among them, as some terminals obey those too.
std::string Printable(std::string_view text) {
  std::string printable;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (text[i] == '\n') {
      printable += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&printable, "\\x%02x", byte);
    } else if (byte == 0xc2 && next >= 0x80 && next <= 0x9f) {
      absl::StrAppendFormat(&printable, "\\x%02x", next);
      ++i;
    } else {
      printable += text[i];
    }
  }
  return printable;
}

// As it is where that cannot be misread, else in quotes.
std::string Value(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_of(" \"=\\") == std::string::npos;
  const std::string printable = Printable(text);
  if (plain && printable == text) return text;
  std::string quoted = "\"";
  for (const char c : printable) {
    if (c == '"') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string TextPayload(const LogEvent& event) {
  std::string line = Printable(event.message);
  for (const auto& [name, value] : event.fields) absl::StrAppend(&line, " ", name, "=", Value(value.text));
  return line;
}

// The members of a JSON object, without its braces.
std::string JsonPayload(const LogEvent& event) {
  nlohmann::ordered_json object;
  object["message"] = event.message;
  for (const auto& [name, value] : event.fields) {
    // JSON has no infinity and no NaN: they stay text.
    const auto number = value.is_number ? nlohmann::ordered_json::parse(value.text, nullptr, false)
                                        : nlohmann::ordered_json(nlohmann::ordered_json::value_t::discarded);
    object[name] = number.is_number() ? number : nlohmann::ordered_json(value.text);
  }
  // Text from a client need not be UTF-8.
  const std::string text = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return text.substr(1, text.size() - 2);
}

std::string Payload(LogFormat format, const LogEvent& event) {
  return format == LogFormat::kJson ? JsonPayload(event) : TextPayload(event);
}

// POSIX: a pipe that polls writable takes so much without blocking.
constexpr std::size_t kPieceBytes = 4096;
// How long a reader that has fallen behind is waited for. Once a line is lost the next ones do not wait, so that a reader that
// has stopped costs this once.
constexpr int kPatienceMs = 50;

// Writes lines to a descriptor, one thread at a time (base_sink sees to that).
class DescriptorSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  DescriptorSink(LogFormat format, int fd) : format_(format), fd_(fd) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (lost_ > 0 && WriteLine(NoticeOfLoss(message))) lost_ = 0;
    if (lost_ > 0 || !WriteLine(message)) ++lost_;
  }
  void flush_() override {}

 private:
  spdlog::details::log_msg NoticeOfLoss(const spdlog::details::log_msg& at) {
    notice_ = Payload(format_, {LogLevel::kWarning, "log lines were lost because nobody read them", {{"lines", lost_}}});
    spdlog::details::log_msg notice = at;
    notice.level = spdlog::level::warn;
    notice.payload = notice_;
    return notice;
  }

  // False where the line was not taken, or not wholly.
  bool WriteLine(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    if (cut_) line.push_back('\n');
    formatter_->format(message, line);
    std::string_view rest(line.data(), line.size());
    while (!rest.empty()) {
      const ssize_t written = WritePiece(rest.substr(0, kPieceBytes));
      if (written < 0) break;
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
    if (rest.size() < line.size()) cut_ = !rest.empty();
    return rest.empty();
  }

  ssize_t WritePiece(std::string_view piece) const {
    pollfd writable{fd_, POLLOUT, 0};
    if (::poll(&writable, 1, lost_ > 0 ? 0 : kPatienceMs) != 1 || (writable.revents & POLLOUT) == 0) return -1;
    const ssize_t written = ::write(fd_, piece.data(), piece.size());
    return written < 0 && errno == EINTR ? 0 : written;
  }

  const LogFormat format_;
  const int fd_;
  std::int64_t lost_ = 0;
  bool cut_ = false;  // the last line that was taken lacks its end
  std::string notice_;
};

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: break;
  }
  return spdlog::level::err;
}

}  // namespace

LogSink MakeLogSink(LogFormat format, LogLevel level, int fd) {
  std::signal(SIGPIPE, SIG_IGN);  // else a reader that leaves would take the server with it
  auto logger = std::make_shared<spdlog::logger>("headroom", std::make_shared<DescriptorSink>(format, fd));
  logger->set_pattern(format == LogFormat::kJson ? kJsonPattern : kTextPattern, spdlog::pattern_time_type::utc);
  logger->set_level(SpdlogLevel(level));
  // spdlog's own handler would print to standard error.
  logger->set_error_handler([](const std::string&) {});
  return [logger, format](const LogEvent& event) {
    const spdlog::level::level_enum event_level = SpdlogLevel(event.level);
    if (logger->should_log(event_level)) logger->log(event_level, Payload(format, event));
  };
}

}  // namespace headroom
