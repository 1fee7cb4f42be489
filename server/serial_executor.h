// A thread that does one task after the other: for what takes too long for a thread of gRPC's.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "base/sync.h"

namespace headroom {

// Thread-safe. Its destructor does what was asked for before it; tasks do not throw. The thread is started by the first task, so
// that it has the signal mask of a server that has begun.
class SerialExecutor {
 public:
  SerialExecutor() = default;
  ~SerialExecutor();
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  void Do(std::function<void()> task) EXCLUDES(mutex_);

 private:
  void Run() EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mutex_);
  bool ending_ GUARDED_BY(mutex_) = false;
  std::jthread thread_ GUARDED_BY(mutex_);  // last: it uses the others
};

}  // namespace headroom
