#include "runtime/torch/cuda_memory.h"

#include <absl/strings/str_cat.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "runtime/torch/torch_error.h"

namespace headroom {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;
using c10::CachingDeviceAllocator::DeviceStats;

thread_local CudaMemoryScope* innermost_scope = nullptr;

// The totals of large and small blocks.
Bytes Current(const c10::CachingAllocator::StatArray& stats) { return {stats[0].current}; }
Bytes Peak(const c10::CachingAllocator::StatArray& stats) { return {stats[0].peak}; }

c10::DeviceIndex IndexOf(int index) { return static_cast<c10::DeviceIndex>(index); }

}  // namespace

CudaMemory::CudaMemory(int index, Bytes total, std::optional<Bytes> cap)
    : index_(index), total_(total), cap_(std::min(total, cap.value_or(total))), limit_(cap_) {
  MutexLock lock(mutex_);
  ApplyLimit(limit_);
}

absl::StatusOr<DeviceMemory> CudaMemory::Read() const {
  std::size_t free = 0;
  std::size_t total = 0;
  cudaError_t error = cudaSuccess;
  Bytes held_before{0};
  DeviceStats stats;
  const auto failure = CatchFailure([&] {
    const c10::cuda::CUDAGuard guard(IndexOf(index_));
    held_before = Current(allocator::getDeviceStats(IndexOf(index_)).reserved_bytes);
    // An assertion that a kernel has tripped may be known to the stream only. Does not wait for kernels that run.
    error = cudaStreamQuery(nullptr);
    if (error == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());  // no error, but kept as if it were one
      error = cudaSuccess;
    }
    if (error == cudaSuccess) error = cudaMemGetInfo(&free, &total);
    stats = allocator::getDeviceStats(IndexOf(index_));
  });
  if (failure.has_value() || error != cudaSuccess) {
    return absl::InternalError(absl::StrCat(
        "cuda:", index_, " does not tell its memory: ", failure.has_value() ? failure->text : cudaGetErrorString(error)));
  }
  DeviceMemory memory;
  memory.total = std::min(cap_, Bytes{static_cast<std::int64_t>(total)});
  // Two sources cannot be read at once. What another thread took between the readings would be counted as free and as held; the
  // smaller of two readings around the driver's is in neither case too much.
  memory.held = std::min(held_before, Current(stats.reserved_bytes));
  // The driver knows what other processes took, the cap only what this one may take.
  memory.free = std::clamp(memory.total - memory.held, Bytes{0}, Bytes{static_cast<std::int64_t>(free)});
  memory.allocated = Current(stats.allocated_bytes);
  memory.unusable = Current(stats.inactive_split_bytes);
  MutexLock lock(mutex_);
  memory.peak_held = std::max(earlier_peak_, Peak(stats.reserved_bytes));
  return memory;
}

void CudaMemory::ResetPeak() {
  MutexLock lock(mutex_);
  CatchFailure([&]() REQUIRES(mutex_) { KeepPeakAndReset(); });
  earlier_peak_ = {0};
}

void CudaMemory::EmptyCache() {
  CatchFailure([&] {
    const c10::cuda::CUDAGuard guard(IndexOf(index_));
    allocator::emptyCache();
  });
}

void CudaMemory::LimitHeld(Bytes limit) {
  MutexLock lock(mutex_);
  limit_ = std::min(limit, cap_);
  ApplyLimit(limit_);
}

void CudaMemory::ApplyLimit(Bytes limit) {
  // The allocator takes a fraction of the whole and rounds down; half a byte more makes it the very limit.
  const double fraction = (static_cast<double>(limit.count) + 0.5) / static_cast<double>(total_.count);
  CatchFailure([&] { allocator::setMemoryFraction(std::clamp(fraction, 0.0, 1.0), IndexOf(index_)); });
}

void CudaMemory::KeepPeakAndReset() {
  earlier_peak_ = std::max(earlier_peak_, Peak(allocator::getDeviceStats(IndexOf(index_)).reserved_bytes));
  allocator::resetPeakStats(IndexOf(index_));
  ++starts_;
}

CudaMemoryScope::CudaMemoryScope(CudaMemory& memory, std::optional<Bytes> probe_limit)
    : memory_(memory), probing_(probe_limit.has_value()), outer_(innermost_scope) {
  innermost_scope = this;
  if (probing_) memory_.EmptyCache();
  MutexLock lock(memory_.mutex_);
  began_alone_ = memory_.running_++ == 0;
  // A device that does not answer leaves the counters at zero here; the run itself then fails and says why.
  CatchFailure([&]() REQUIRES(memory_.mutex_) {
    // Not while another run measures: its peak would be forgotten. That run's peak is unknown from here on all the same.
    if (began_alone_) {
      memory_.KeepPeakAndReset();
    } else {
      ++memory_.starts_;
    }
    start_ = memory_.starts_;
    const DeviceStats stats = allocator::getDeviceStats(IndexOf(memory_.index_));
    before_ = {.allocated = Current(stats.allocated_bytes),
               .requested = Current(stats.requested_bytes),
               .held = Current(stats.reserved_bytes)};
  });
  if (probing_) memory_.ApplyLimit(std::min(memory_.limit_, before_.held + *probe_limit));
}

CudaMemoryScope::~CudaMemoryScope() {
  innermost_scope = outer_;
  MutexLock lock(memory_.mutex_);
  --memory_.running_;
  if (probing_) memory_.ApplyLimit(memory_.limit_);
}

bool CudaMemoryScope::alone() const { return began_alone_ && start_ == memory_.starts_; }

std::optional<CudaMemoryScope::Peaks> CudaMemoryScope::peaks() const {
  std::optional<Peaks> peaks;
  MutexLock lock(memory_.mutex_);
  if (!alone()) return std::nullopt;
  CatchFailure([&] {
    const DeviceStats stats = allocator::getDeviceStats(IndexOf(memory_.index_));
    peaks = {.allocated = Peak(stats.allocated_bytes) - before_.allocated,
             .requested = Peak(stats.requested_bytes) - before_.requested,
             .held = Peak(stats.reserved_bytes) - before_.held};
  });
  return peaks;
}

void CudaMemoryScope::OnOutOfMemory(std::int64_t device, std::size_t wanted) {
  CudaMemoryScope* const scope = innermost_scope;
  if (scope == nullptr || scope->memory_.index_ != device) return;
  Bytes held{0};
  {
    MutexLock lock(scope->memory_.mutex_);
    if (scope->alone()) {
      CatchFailure([&] {
        held = Current(allocator::getDeviceStats(IndexOf(scope->memory_.index_)).allocated_bytes) - scope->before_.allocated;
      });
    }
  }
  scope->refused_ = held + Bytes{static_cast<std::int64_t>(wanted)};
}

}  // namespace headroom
