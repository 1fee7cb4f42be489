// SIGTERM and SIGINT as a call.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace headroom {

// To be made before any other thread, which then inherits that the signals are blocked. Calls `on_stop` for each of them, on a
// thread of its own; until SetHandler the signals wait.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Once.
  void SetHandler(std::function<void()> on_stop);

 private:
  std::atomic<bool> ending_ = false;
  std::thread waiter_;
};

}  // namespace headroom
