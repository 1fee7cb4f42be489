#include "runtime/torch/cpu_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#include "runtime/page_pool.h"

namespace headroom {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kAlignment = 64;
constexpr std::int64_t kBlock = 512;
// Tensors from this size on have pages of their own; smaller ones are malloc's, whose heaps they cannot blow up.
constexpr std::int64_t kOwnPages = 1 << 20;
// More than any machine has: leaves room for the arithmetic on a size that a corrupt file made up.
constexpr std::size_t kLargestRequest = std::size_t{1} << 60U;

thread_local CpuMemoryScope* innermost_scope = nullptr;
std::atomic<std::uint64_t> next_scope_id{1};

// In front of every block. A block is given back by its address alone, maybe on another thread and after its scope.
struct alignas(kAlignment) BlockHeader {
  std::int64_t counted = 0;
  std::int64_t size = 0;       // with the header
  std::uint64_t scope_id = 0;  // 0: made outside any scope
};
static_assert(sizeof(BlockHeader) == kAlignment);

}  // namespace

class CpuAllocator final : public c10::Allocator {
 public:
  static CpuAllocator& Instance() {
    // Never destroyed: tensors in static variables are freed after it would be.
    static auto* const instance = new CpuAllocator;
    return *instance;
  }

  c10::DataPtr allocate(std::size_t size) override {
    void* const memory = size == 0 ? nullptr : Allocate(size);
    return {memory, memory, &Free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, std::size_t size) const override { default_copy_data(to, from, size); }

  // Large blocks that are free, up to what may be held beside what is allocated.
  void TrimKept() { pool.KeepAtMost({held_limit.load() - allocated.load()}); }

  PagePool pool;
  std::atomic<std::int64_t> held_limit{0};
  std::atomic<std::int64_t> limit{kUnlimited};
  std::atomic<std::int64_t> allocated{0};
  std::atomic<std::int64_t> peak{0};

 private:
  void* Allocate(std::size_t size) {
    if (size > kLargestRequest) Refuse(static_cast<std::int64_t>(kLargestRequest));
    const std::int64_t counted = (static_cast<std::int64_t>(size) + kBlock - 1) / kBlock * kBlock;
    CpuMemoryScope* const scope = innermost_scope;
    if (scope != nullptr && counted > scope->cap_ - scope->held_) Refuse(counted);
    if (!Reserve(counted)) Refuse(counted);
    void* const memory = Obtain(sizeof(BlockHeader) + size);
    if (memory == nullptr) {
      allocated.fetch_sub(counted);
      Refuse(counted);
    }
    auto* const header = new (memory) BlockHeader{.counted = counted,
                                                  .size = static_cast<std::int64_t>(sizeof(BlockHeader) + size),
                                                  .scope_id = scope == nullptr ? 0 : scope->id_};
    if (scope != nullptr) {
      scope->held_ += counted;
      scope->peak_ = std::max(scope->peak_, scope->held_);
    }
    return header + 1;
  }

  static void Free(void* memory) {
    if (memory == nullptr) return;
    auto* const header = static_cast<BlockHeader*>(memory) - 1;
    Instance().allocated.fetch_sub(header->counted);
    for (CpuMemoryScope* scope = innermost_scope; scope != nullptr; scope = scope->outer_) {
      if (scope->id_ == header->scope_id) scope->held_ -= header->counted;
    }
    Release(header, header->size);
  }

  static void* Obtain(std::size_t size) {
    if (static_cast<std::int64_t>(size) < kOwnPages) return ::operator new (size, std::align_val_t{kAlignment}, std::nothrow);
    void* const memory = Instance().pool.Take({static_cast<std::int64_t>(size)});
    // What is kept and did not fit makes room for what is new.
    Instance().TrimKept();
    return memory;
  }
  static void Release(void* memory, std::int64_t size) {
    if (size < kOwnPages) return ::operator delete (memory, std::align_val_t{kAlignment});
    Instance().pool.Give(memory, {size});
    Instance().TrimKept();
  }

  // Checking and adding are one step: of two threads that want the last block exactly one gets it, and one that is refused has
  // never stood in the other's way.
  bool Reserve(std::int64_t size) {
    std::int64_t before = allocated.load();
    do {
      if (size > limit.load() - before) return false;
    } while (!allocated.compare_exchange_weak(before, before + size));
    std::int64_t highest = peak.load();
    while (before + size > highest && !peak.compare_exchange_weak(highest, before + size)) {
    }
    return true;
  }

  [[noreturn]] static void Refuse(std::int64_t size) {
    std::int64_t wanted = size;
    if (CpuMemoryScope* const scope = innermost_scope; scope != nullptr) {
      wanted += scope->held_;
      scope->refused_ = Bytes{wanted};
    }
    // The fixed words are what TorchErrorIsOutOfMemory knows where a refusal happened on a thread without a scope.
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CPU out of memory: a tensor of ", size, " bytes was refused, the run would hold ",
                     wanted);
    std::abort();  // not reached: the check throws
  }
};

void InstallCpuAllocator() { c10::SetCPUAllocator(&CpuAllocator::Instance(), /*priority=*/100); }

void LimitCpuMemory(Bytes limit) { CpuAllocator::Instance().limit = limit.count; }

void LimitCpuHeld(Bytes limit) {
  CpuAllocator::Instance().held_limit = limit.count;
  CpuAllocator::Instance().TrimKept();
}

void ReleaseKeptCpuMemory() { CpuAllocator::Instance().pool.KeepAtMost({0}); }

CpuMemory ReadCpuMemory() {
  const CpuAllocator& allocator = CpuAllocator::Instance();
  return {.limit = {allocator.limit.load()},
          .allocated = {allocator.allocated.load()},
          .kept = allocator.pool.kept(),
          .peak = {allocator.peak.load()}};
}

void ResetCpuPeak() {
  CpuAllocator& allocator = CpuAllocator::Instance();
  allocator.peak = allocator.allocated.load();
}

CpuMemoryScope::CpuMemoryScope(std::optional<Bytes> cap)
    : id_(next_scope_id.fetch_add(1)), cap_(cap.value_or(Bytes{kUnlimited}).count), outer_(innermost_scope) {
  innermost_scope = this;
}

CpuMemoryScope::~CpuMemoryScope() { innermost_scope = outer_; }

}  // namespace headroom
