#include "server/signals.h"

#include <pthread.h>

#include <csignal>
#include <utility>

namespace headroom {
namespace {

// Wakes the waiter when it is to end; sent from outside it does nothing.
constexpr int kEndWaiter = SIGUSR1;

sigset_t WaitedFor() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, kEndWaiter}) sigaddset(&set, number);
  return set;
}

}  // namespace

StopSignals::StopSignals() {
  const sigset_t set = WaitedFor();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void StopSignals::SetHandler(std::function<void()> on_stop) {
  waiter_ = std::thread([this, on_stop = std::move(on_stop)] {
    const sigset_t set = WaitedFor();
    int number = 0;
    while (sigwait(&set, &number) == 0 && !ending_) {
      if (number != kEndWaiter) on_stop();
    }
  });
}

StopSignals::~StopSignals() {
  if (!waiter_.joinable()) return;
  ending_ = true;
  pthread_kill(waiter_.native_handle(), kEndWaiter);
  waiter_.join();
}

}  // namespace headroom
