#include "bench/ideal/crew.h"

namespace headroom {

Crew::Crew(int workers) {
  for (int worker = 0; worker < workers; ++worker) {
    threads_.emplace_back([this, worker] { Serve(worker); });
  }
}

Crew::~Crew() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void Crew::RunAll(const std::function<void(int)>& work) {
  MutexLock lock(mutex_);
  work_ = &work;
  working_ = size();
  ++turn_;
  changed_.NotifyAll();
  while (working_ > 0) changed_.Wait(mutex_);
  work_ = nullptr;
}

void Crew::Serve(int worker) {
  std::int64_t done = 0;
  while (true) {
    const std::function<void(int)>* work = nullptr;
    {
      MutexLock lock(mutex_);
      while (!ends_ && turn_ == done) changed_.Wait(mutex_);
      if (ends_) return;
      done = turn_;
      work = work_;
    }
    (*work)(worker);
    {
      MutexLock lock(mutex_);
      --working_;
    }
    changed_.NotifyAll();
  }
}

}  // namespace headroom
