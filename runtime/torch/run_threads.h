// How many threads the operations of one run on the CPU are spread over.
#pragma once

namespace headroom {

// The calling thread's operations run on `threads` threads until it is destroyed, then on as many as before; no other thread's are
// touched. What that takes, since at::set_num_threads is for the whole process and throws kernels away that oneDNN has made:
// OpenMP's number, which is the calling thread's, and MKL's own for the thread, which goes before OpenMP's.
//
// libtorch's OpenMP gives each thread that runs something in parallel a pool of its own. Its threads would stay and, for
// milliseconds after the last operation, spin; a server with a worker a processor would come to hold the square of that number. So
// the pool goes with its owner. Does nothing where `threads` is what the thread has anyway.
class RunThreads {
 public:
  explicit RunThreads(int threads);
  ~RunThreads();
  RunThreads(const RunThreads&) = delete;
  RunThreads& operator=(const RunThreads&) = delete;

 private:
  int before_ = 0;  // 0: nothing was changed
};

}  // namespace headroom
