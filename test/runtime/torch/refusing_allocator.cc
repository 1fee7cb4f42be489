#include "test/runtime/torch/refusing_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <limits>

namespace headroom {
namespace {

class RefusingAllocator final : public c10::Allocator {
 public:
  explicit RefusingAllocator(c10::Allocator& real) : real_(real) {}

  c10::DataPtr allocate(std::size_t size) override {
    // Asked for what no machine has, the real one refuses as it would at its limit.
    return size > 0 && IsRefused() ? real_.allocate(std::numeric_limits<std::size_t>::max() / 2) : real_.allocate(size);
  }
  c10::DeleterFnPtr raw_deleter() const override { return real_.raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t size) const override { real_.copy_data(to, from, size); }

  std::atomic<std::int64_t> nth{0};
  std::atomic<bool> repeat{false};
  std::atomic<std::int64_t> count{0};
  std::atomic<std::int64_t> refused{0};

 private:
  bool IsRefused() {
    const std::int64_t which = nth;
    if (which <= 0) return false;
    const std::int64_t number = ++count;
    if (repeat ? number % which != 0 : number != which) return false;
    ++refused;
    return true;
  }

  c10::Allocator& real_;
};

RefusingAllocator* installed = nullptr;

}  // namespace

void InstallRefusingAllocator() {
  if (installed != nullptr) return;
  // Never destroyed: tensors in static variables are freed after it would be.
  installed = new RefusingAllocator(*c10::GetCPUAllocator());
  c10::SetCPUAllocator(installed, /*priority=*/200);
}

void RefuseAllocation(std::int64_t nth, bool repeat) {
  installed->nth = 0;
  installed->count = 0;
  installed->refused = 0;
  installed->repeat = repeat;
  installed->nth = nth;
}

std::int64_t AllocationsRefused() { return installed->refused; }

}  // namespace headroom
