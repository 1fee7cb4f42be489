#include "card_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace headroom::dry_cuda {
namespace {

void* MapPages(std::size_t bytes, int extra_flags) {
  void* begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
  return begin == MAP_FAILED ? nullptr : begin;
}

}  // namespace

CardMemory::CardMemory(const std::vector<Card>& cards) {
  for (const Card& card : cards) {
    accounts_.push_back({.total_bytes = card.total_bytes, .held_by_others = card.held_by_others, .allocated_bytes = 0});
  }
}

std::uint64_t CardMemory::FreeBytes(const Account& account) {
  const std::uint64_t used = account.held_by_others + account.allocated_bytes;
  return used >= account.total_bytes ? 0 : account.total_bytes - used;
}

void* CardMemory::Allocate(int device, std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(mu_);
  Account& account = accounts_[static_cast<std::size_t>(device)];
  if (bytes > FreeBytes(account)) return nullptr;
  void* begin = MapPages(bytes, MAP_NORESERVE);
  if (begin == nullptr) {
    // To the program this looks like a full card, which it is not: say so, or the reader measures the wrong thing.
    std::fprintf(stderr, "headroom dry CUDA: the host refused %zu bytes of address space: %s\n", bytes, std::strerror(errno));
    return nullptr;
  }
  // A write then costs the host a small page, not a huge one. A kernel without huge pages refuses, harmlessly.
  madvise(begin, bytes, MADV_NOHUGEPAGE);
  account.allocated_bytes += bytes;
  allocations_.Insert(begin, bytes, device);
  return begin;
}

bool CardMemory::Free(void* begin) {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto range = allocations_.Take(begin);
  if (!range.has_value()) return false;
  accounts_[static_cast<std::size_t>(range->tag)].allocated_bytes -= range->bytes;
  munmap(begin, range->bytes);
  return true;
}

CardMemory::Usage CardMemory::GetUsage(int device) const {
  const std::lock_guard<std::mutex> lock(mu_);
  const Account& account = accounts_[static_cast<std::size_t>(device)];
  return {.free_bytes = FreeBytes(account), .total_bytes = account.total_bytes};
}

void CardMemory::SetHeldByOthers(int device, std::uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mu_);
  Account& account = accounts_[static_cast<std::size_t>(device)];
  // Others cannot hold more than there is; the cap also keeps the sums in FreeBytes from wrapping.
  account.held_by_others = bytes < account.total_bytes ? bytes : account.total_bytes;
}

std::optional<int> CardMemory::DeviceOf(const void* address) const {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto range = allocations_.Find(address);
  if (!range.has_value()) return std::nullopt;
  return range->tag;
}

void* PinnedMemory::Allocate(std::size_t bytes) {
  void* begin = MapPages(bytes, 0);
  if (begin == nullptr) return nullptr;
  const std::lock_guard<std::mutex> lock(mu_);
  ranges_.Insert(begin, bytes, Origin::kAllocated);
  return begin;
}

bool PinnedMemory::Free(void* begin) {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = ranges_.Find(begin);
  if (!found.has_value() || found->tag != Origin::kAllocated) return false;
  const auto range = ranges_.Take(begin);
  if (!range.has_value()) return false;
  munmap(begin, range->bytes);
  return true;
}

bool PinnedMemory::Register(void* begin, std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (ranges_.Find(begin).has_value()) return false;
  ranges_.Insert(begin, bytes, Origin::kRegistered);
  return true;
}

bool PinnedMemory::Unregister(void* begin) {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = ranges_.Find(begin);
  if (!found.has_value() || found->tag != Origin::kRegistered) return false;
  return ranges_.Take(begin).has_value();
}

bool PinnedMemory::Contains(const void* address) const {
  const std::lock_guard<std::mutex> lock(mu_);
  return ranges_.Find(address).has_value();
}

}  // namespace headroom::dry_cuda
