// Keeps account of device memory on every card, and of pinned host memory.
#ifndef HEADROOM_RUNTIME_DRY_CUDA_CARD_MEMORY_H_
#define HEADROOM_RUNTIME_DRY_CUDA_CARD_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "card.h"

namespace headroom::dry_cuda {

// Address ranges that do not overlap, found by any address inside. Not synchronized.
template <typename Tag>
class RangeMap {
 public:
  struct Range {
    std::uintptr_t begin;
    std::size_t bytes;
    Tag tag;
  };

  void Insert(const void* begin, std::size_t bytes, Tag tag) {
    const auto key = reinterpret_cast<std::uintptr_t>(begin);
    ranges_[key] = Range{key, bytes, tag};
  }

  std::optional<Range> Find(const void* address) const {
    const auto key = reinterpret_cast<std::uintptr_t>(address);
    auto it = ranges_.upper_bound(key);
    if (it == ranges_.begin()) return std::nullopt;
    --it;
    if (key - it->first >= it->second.bytes) return std::nullopt;
    return it->second;
  }

  // Removes the range that begins exactly at `begin` and returns it.
  std::optional<Range> Take(const void* begin) {
    const auto it = ranges_.find(reinterpret_cast<std::uintptr_t>(begin));
    if (it == ranges_.end()) return std::nullopt;
    const Range range = it->second;
    ranges_.erase(it);
    return range;
  }

 private:
  std::map<std::uintptr_t, Range> ranges_;
};

// Device memory of all cards. Every allocation is address space of this process that costs host memory only where it is
// written. Thread-safe.
class CardMemory {
 public:
  struct Usage {
    std::uint64_t free_bytes;
    std::uint64_t total_bytes;
  };

  explicit CardMemory(const std::vector<Card>& cards);

  // Returns zero-filled, page-aligned memory, or null when the card has not so much left. `bytes` is not 0, `device` is
  // a card.
  void* Allocate(int device, std::size_t bytes);

  // Returns false when `begin` is not the beginning of an allocation.
  bool Free(void* begin);

  // Free is total less held by others less allocated, never below 0. It is what the sum says: nothing fragments here.
  Usage GetUsage(int device) const;

  void SetHeldByOthers(int device, std::uint64_t bytes);

  // The card of the allocation around `address`, if there is one.
  std::optional<int> DeviceOf(const void* address) const;

 private:
  struct Account {
    std::uint64_t total_bytes;
    std::uint64_t held_by_others;
    std::uint64_t allocated_bytes;
  };

  static std::uint64_t FreeBytes(const Account& account);

  mutable std::mutex mu_;
  std::vector<Account> accounts_;  // Guarded by mu_, as is all below.
  RangeMap<int> allocations_;      // Tagged with the device.
};

// Page-locked host memory, of which only the bookkeeping matters here. Thread-safe.
class PinnedMemory {
 public:
  // Returns page-aligned memory or null. `bytes` is not 0.
  void* Allocate(std::size_t bytes);
  bool Free(void* begin);

  // Refuse a range that is already pinned at its beginning, and one that was never registered.
  bool Register(void* begin, std::size_t bytes);
  bool Unregister(void* begin);

  bool Contains(const void* address) const;

 private:
  enum class Origin { kAllocated, kRegistered };

  mutable std::mutex mu_;
  RangeMap<Origin> ranges_;  // Guarded by mu_.
};

}  // namespace headroom::dry_cuda

#endif  // HEADROOM_RUNTIME_DRY_CUDA_CARD_MEMORY_H_
