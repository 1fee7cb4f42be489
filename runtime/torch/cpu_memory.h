// The CPU's tensor memory as a budget: an allocator of libtorch's that counts every tensor, refuses what would pass a limit, and
// tells what a single run held. So that the whole story of memory runs, for real, on a machine without a GPU.
//
// Counted are the bytes of tensors, each rounded up to 512 as libtorch does on a GPU. Not counted: what a library takes behind
// libtorch's back (oneDNN's and MKL's scratch), the graph, the code, and malloc's own overhead.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace headroom {

// Makes every CPU tensor from now on come from the counting allocator. To be called before the first tensor, from one thread;
// calling it again changes nothing.
void InstallCpuAllocator();

// What the counting allocator may hold at most in the whole process; without a limit until it is called. Memory that is held
// already stays. Thread-safe.
void LimitCpuMemory(Bytes limit);

// Large blocks that are freed are kept for the next tensors, as long as they and all that is allocated are no more than this
// together; until it is called nothing is kept. Thread-safe.
void LimitCpuHeld(Bytes limit);
// Gives what is kept to the system.
void ReleaseKeptCpuMemory();

struct CpuMemory {
  Bytes limit{0};
  Bytes allocated{0};
  Bytes kept{0};  // free, and not yet given back to the system
  Bytes peak{0};  // the most that was allocated at once since ResetCpuPeak
};

// Thread-safe; the three are read one after the other.
CpuMemory ReadCpuMemory();
void ResetCpuPeak();

// Measures what the calling thread allocates while it lives, and tells whether an allocation was refused, which the exception
// does not: TorchScript turns it into a std::runtime_error. Belongs to the thread that made it; scopes nest, the innermost one
// counts.
//
// Only the calling thread is measured: what the threads of a parallel region or of torch.jit.fork allocate is counted in the
// process and held to its limit, but is not in the scope. libtorch's kernels allocate before their parallel region and only
// compute in it (ATen/Parallel.h forbids tensors there), so that for forward passes nothing is missed but forks.
class CpuMemoryScope {
 public:
  // An allocation that would take the scope over `cap` is refused as if the process' limit had been reached.
  explicit CpuMemoryScope(std::optional<Bytes> cap = std::nullopt);
  ~CpuMemoryScope();
  CpuMemoryScope(const CpuMemoryScope&) = delete;
  CpuMemoryScope& operator=(const CpuMemoryScope&) = delete;

  // The most that was held at once of what was allocated in the scope. Memory from before the scope does not count, nor lowers
  // the count when it is freed.
  Bytes peak() const { return {peak_}; }
  // Where an allocation was refused: what the scope would have held with it.
  std::optional<Bytes> refused() const { return refused_; }

 private:
  friend class CpuAllocator;

  const std::uint64_t id_;
  const std::int64_t cap_;
  std::int64_t held_ = 0;
  std::int64_t peak_ = 0;
  std::optional<Bytes> refused_;
  CpuMemoryScope* const outer_;
};

}  // namespace headroom
