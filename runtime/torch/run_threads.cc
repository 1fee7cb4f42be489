#include "runtime/torch/run_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <latch>
#include <memory>
#include <mutex>
#include <thread>

#include "base/sync.h"

namespace headroom {
namespace {

// The OpenMP that libtorch has brought, and MKL where it has one. By name, since we are not compiled with either.
struct Libraries {
  using SetThreads = void (*)(int);
  using SetThreadsLocal = int (*)(int);
  using PauseResource = int (*)(int kind, int device);
  using Number = int (*)();

  SetThreads set_openmp = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  SetThreadsLocal set_mkl = reinterpret_cast<SetThreadsLocal>(dlsym(RTLD_DEFAULT, "MKL_Set_Num_Threads_Local"));
  PauseResource pause = reinterpret_cast<PauseResource>(dlsym(RTLD_DEFAULT, "omp_pause_resource"));
  Number host = reinterpret_cast<Number>(dlsym(RTLD_DEFAULT, "omp_get_initial_device"));

  using Parallel = void (*)(void (*body)(void*), void* argument, unsigned threads, unsigned flags);
  Parallel parallel = reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  Number processors = reinterpret_cast<Number>(dlsym(RTLD_DEFAULT, "omp_get_num_procs"));

  void Set(int threads) const {
    set_openmp(threads);
    if (set_mkl != nullptr) set_mkl(threads);
  }
  void EndPool() const {
    constexpr int kSoft = 1;  // omp_pause_soft: settings stay
    if (pause != nullptr && host != nullptr) pause(kSoft, host());
  }
};

const Libraries& LibrariesOfProcess() {
  static const Libraries libraries;
  return libraries;
}

// GNU's OpenMP lets a thread that waits for another spin for milliseconds, unless there are more of its threads than processors:
// then hardly at all. A machine is shared, and where the other has to give its processor to somebody else, who spins keeps a third
// one from it: MiniLM on a row of 8 took 200 ms for 5. The policy is read from the environment before main() begins; that there are
// more threads than processors can be seen to here, by as many that sleep. Who has set OMP_WAIT_POLICY or GOMP_SPINCOUNT is heeded
// as ever.
void KeepWaitsShort() {
  const Libraries& libraries = LibrariesOfProcess();
  if (libraries.parallel == nullptr || libraries.processors == nullptr) return;
  const auto started = std::make_shared<std::latch>(1);
  std::thread([started, &libraries] {
    libraries.parallel([](void*) {}, nullptr, static_cast<unsigned>(libraries.processors()) + 1, 0);
    started->count_down();
    // They go with the thread that owns them, so it stays.
    Mutex mutex;
    CondVar never;
    MutexLock lock(mutex);
    while (true) never.Wait(mutex);
  }).detach();
  started->wait();
}

}  // namespace

RunThreads::RunThreads(int threads) {
  const int have = at::get_num_threads();
  if (threads <= 0 || threads == have || LibrariesOfProcess().set_openmp == nullptr) return;
  if (threads > 1) {
    static std::once_flag once;
    std::call_once(once, KeepWaitsShort);
  }
  before_ = have;
  LibrariesOfProcess().Set(threads);
}

RunThreads::~RunThreads() {
  if (before_ == 0) return;
  LibrariesOfProcess().Set(before_);
  LibrariesOfProcess().EndPool();
}

}  // namespace headroom
