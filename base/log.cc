#include "base/log.h"

#include <memory>

#include "base/sync.h"

namespace headroom {
namespace {

struct Installed {
  Mutex mutex;
  std::shared_ptr<const LogSink> sink GUARDED_BY(mutex);
};

Installed& TheSink() {
  // Never destroyed: threads may log while the process ends.
  static auto* const installed = new Installed;
  return *installed;
}

}  // namespace

void SetLogSink(LogSink sink) {
  auto shared = std::make_shared<const LogSink>(std::move(sink));
  Installed& installed = TheSink();
  MutexLock lock(installed.mutex);
  installed.sink = std::move(shared);
}

void Log(LogLevel level, std::string message, std::vector<std::pair<std::string, LogValue>> fields) {
  std::shared_ptr<const LogSink> sink;
  {
    Installed& installed = TheSink();
    MutexLock lock(installed.mutex);
    sink = installed.sink;
  }
  if (sink != nullptr && *sink) (*sink)({level, std::move(message), std::move(fields)});
}

}  // namespace headroom
