#include "server/serial_executor.h"

#include <utility>

namespace headroom {

SerialExecutor::~SerialExecutor() {
  MutexLock lock(mutex_);
  ending_ = true;
  changed_.NotifyAll();
}

void SerialExecutor::Do(std::function<void()> task) {
  MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  if (!thread_.joinable()) thread_ = std::jthread([this] { Run(); });
  changed_.NotifyAll();
}

void SerialExecutor::Run() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !ending_) changed_.Wait(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace headroom
