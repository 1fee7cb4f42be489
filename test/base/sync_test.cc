#include "base/sync.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <vector>

namespace headroom {
namespace {

TEST_CASE("a mutex excludes: no increment is lost", "[sync]") {
  Mutex mutex;
  int count = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < 5000; ++n) {
          MutexLock lock(mutex);
          ++count;
        }
      });
    }
  }
  CHECK(count == 20000);
}

TEST_CASE("a condition hands a value back and forth, and the mutex is held after each wait", "[sync]") {
  Mutex mutex;
  CondVar condition;
  int turn = 0;
  const auto play = [&](int parity) {
    for (int n = 0; n < 500; ++n) {
      MutexLock lock(mutex);
      while (turn % 2 != parity) condition.Wait(mutex);
      ++turn;
      condition.NotifyAll();
    }
  };
  {
    std::jthread even(play, 0);
    std::jthread odd(play, 1);
  }
  CHECK(turn == 1000);
}

TEST_CASE("a bounded wait tells that the time came first", "[sync]") {
  Mutex mutex;
  CondVar condition;
  MutexLock lock(mutex);
  CHECK_FALSE(condition.WaitUntil(mutex, std::chrono::steady_clock::time_point{}));
}

}  // namespace
}  // namespace headroom
