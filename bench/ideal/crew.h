// Threads that do the same work together, again and again.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "base/sync.h"

namespace headroom {

// The threads live as long as the crew: what libtorch keeps for a thread is then made once. RunAll by one thread at a time.
class Crew {
 public:
  explicit Crew(int workers);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }
  // Calls `work` with each worker's number, 0 to size() - 1, on all of them at once, and waits until all have returned.
  void RunAll(const std::function<void(int worker)>& work) EXCLUDES(mutex_);

 private:
  void Serve(int worker) EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  const std::function<void(int)>* work_ GUARDED_BY(mutex_) = nullptr;
  std::int64_t turn_ GUARDED_BY(mutex_) = 0;
  int working_ GUARDED_BY(mutex_) = 0;
  bool ends_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace headroom
