#include "test/faulty/host_allocation.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
// Constant-initialised: memory is allocated before any constructor of ours has run.
constinit std::atomic<std::int64_t> fails_over = kNever;
constinit std::atomic<std::int64_t> asked_over = kNever;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kReplaced = false;
#else
constexpr bool kReplaced = true;
#endif

[[maybe_unused]] void* Checked(std::size_t size, void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  if (static_cast<std::int64_t>(size) <= fails_over.load(std::memory_order_relaxed)) return memory;
  std::free(memory);
  throw std::bad_alloc();
}

}  // namespace

// AddressSanitizer has a family of its own, of which none may be missing.
#if !defined(__SANITIZE_ADDRESS__)
// The others of the family come to these.
void* operator new(std::size_t size) { return Checked(size, std::malloc(size > 0 ? size : 1)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto step = static_cast<std::size_t>(alignment);
  return Checked(size, std::aligned_alloc(step, (size + step - 1) / step * step));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

namespace headroom {

std::optional<absl::Status> ReadHostAllocationFault(const std::string& text) {
  const std::string prefix = absl::StrCat(kHostAllocationFaultName, "=");
  if (!text.starts_with(prefix)) return std::nullopt;
  if (!kReplaced) return absl::InvalidArgumentError(absl::StrCat(kHostAllocationFaultName, " is not in this build"));
  std::int64_t bytes = 0;
  if (!absl::SimpleAtoi(text.substr(prefix.size()), &bytes) || bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' has no number of bytes"));
  }
  asked_over = bytes;
  return absl::OkStatus();
}

void ArmHostAllocationFault() { fails_over = asked_over.load(); }

}  // namespace headroom
