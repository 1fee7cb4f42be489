// Where log events go: one line each on a file descriptor.
#pragma once

#include "base/log.h"

namespace headroom {

enum class LogFormat {
  kText,  // for people: "2024-05-01T12:00:00.000Z info    ready grpc=127.0.0.1:8001 models=2"
  kJson,  // for machines: an object a line with time, level, message and the fields, numbers unquoted
};

// A sink that writes events of at least `level` to `fd`, each in one piece. Control characters are escaped, so that what a client
// sent can neither end a line nor steer a terminal. Logging never ends the process and never holds it up: what a closed
// or full descriptor does not take is dropped, and the number of lines lost is told as soon as it takes something again.
//
// `fd` stays the caller's and is not closed. Makes the process ignore SIGPIPE.
LogSink MakeLogSink(LogFormat format, LogLevel level, int fd);

}  // namespace headroom
