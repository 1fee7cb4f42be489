// The memory of one CUDA device: what the driver and libtorch's caching allocator say of it, and what one run took.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/sync.h"
#include "runtime/device.h"

namespace headroom {

// Thread-safe. One an index in the process: it resets the allocator's peak counters, of which there is one set a device.
class CudaMemory {
 public:
  // `total` is the whole device's memory, `cap` what the process may hold of it. libtorch's CUDA side is initialised already.
  CudaMemory(int index, Bytes total, std::optional<Bytes> cap);

  // INTERNAL where the driver does not answer, or answers with the error of a poisoned context. Waits for no kernel.
  absl::StatusOr<DeviceMemory> Read() const EXCLUDES(mutex_);
  void ResetPeak() EXCLUDES(mutex_);
  void EmptyCache();
  // What the allocator may hold from now on, cached blocks included; never more than the cap.
  void LimitHeld(Bytes limit) EXCLUDES(mutex_);

 private:
  friend class CudaMemoryScope;

  void ApplyLimit(Bytes limit) REQUIRES(mutex_);
  void KeepPeakAndReset() REQUIRES(mutex_);

  const int index_;
  const Bytes total_;
  const Bytes cap_;

  mutable Mutex mutex_;
  Bytes limit_ GUARDED_BY(mutex_);               // of LimitHeld, in force but for probes
  Bytes earlier_peak_ GUARDED_BY(mutex_){0};     // the most that was held since ResetPeak, before the allocator's own last reset
  int running_ GUARDED_BY(mutex_) = 0;           // scopes alive
  std::uint64_t starts_ GUARDED_BY(mutex_) = 0;  // grows whenever the allocator's peaks stop being one scope's own
};

// Measures one run, on the thread that runs it, and tells whether an allocation was refused, which the exception does not:
// TorchScript turns it into a std::runtime_error.
class CudaMemoryScope {
 public:
  // With `probe_limit` the cache is emptied first and the allocator may grow by so much only while the scope lives.
  CudaMemoryScope(CudaMemory& memory, std::optional<Bytes> probe_limit);
  ~CudaMemoryScope();
  CudaMemoryScope(const CudaMemoryScope&) = delete;
  CudaMemoryScope& operator=(const CudaMemoryScope&) = delete;

  // The growth so far. Nothing where another scope lived meanwhile: the allocator's counters are the device's, not a thread's.
  struct Peaks {
    Bytes allocated{0};  // in tensors, by the blocks that they were given
    Bytes requested{0};  // in tensors, by what was asked for: unlike blocks, the same whatever is cached
    Bytes held{0};       // taken from the device
  };
  std::optional<Peaks> peaks() const;
  // Where an allocation of this thread was refused: what the run would have held in tensors with it, as far as that can be told.
  std::optional<Bytes> refused() const { return refused_; }

  // Called by libtorch when it gives up an allocation of the calling thread.
  static void OnOutOfMemory(std::int64_t device, std::size_t wanted);

 private:
  bool alone() const REQUIRES(memory_.mutex_);

  CudaMemory& memory_;
  const bool probing_;
  CudaMemoryScope* const outer_;
  bool began_alone_ = false;
  std::uint64_t start_ = 0;
  Peaks before_;
  std::optional<Bytes> refused_;
};

}  // namespace headroom
