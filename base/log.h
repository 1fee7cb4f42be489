// Structured events: a name in words and fields. Where they go is the sink's business; the program installs one, and until
// then events go nowhere. Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace headroom {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// A field's value: text that is quoted, or a number that is not.
struct LogValue {
  std::string text;
  bool is_number = false;

  LogValue(const char* value) : text(value) {}                                    // NOLINT(google-explicit-constructor)
  LogValue(std::string value) : text(std::move(value)) {}                         // NOLINT(google-explicit-constructor)
  LogValue(std::int64_t value) : text(std::to_string(value)), is_number(true) {}  // NOLINT(google-explicit-constructor)
  LogValue(int value) : LogValue(std::int64_t{value}) {}                          // NOLINT(google-explicit-constructor)
  LogValue(std::size_t value) : LogValue(static_cast<std::int64_t>(value)) {}     // NOLINT(google-explicit-constructor)
  LogValue(double value) : text(std::to_string(value)), is_number(true) {}        // NOLINT(google-explicit-constructor)
  LogValue(Bytes value) : LogValue(value.count) {}                                // NOLINT(google-explicit-constructor)
};

struct LogEvent {
  LogLevel level = LogLevel::kInfo;
  std::string message;
  std::vector<std::pair<std::string, LogValue>> fields;
};

using LogSink = std::function<void(const LogEvent&)>;

// Replaces the sink. The sink may be called from any thread, by several at once.
void SetLogSink(LogSink sink);

void Log(LogLevel level, std::string message, std::vector<std::pair<std::string, LogValue>> fields = {});

}  // namespace headroom
