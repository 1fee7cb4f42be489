#include "runtime/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace headroom {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t InPages(Bytes size) { return (static_cast<std::size_t>(size.count) + kPage - 1) / kPage * kPage; }

}  // namespace

void* PagePool::Take(Bytes size) {
  const std::size_t wanted = InPages(size);
  {
    MutexLock lock(mutex_);
    auto best = pieces_.end();
    for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece) {
      if (piece->second >= wanted && (best == pieces_.end() || piece->second < best->second)) best = piece;
    }
    if (best != pieces_.end()) {
      const auto [memory, whole] = *best;
      pieces_.erase(best);
      if (whole > wanted) pieces_.emplace(memory + wanted, whole - wanted);
      kept_ -= wanted;
      return memory;
    }
  }
  void* const memory = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void PagePool::Give(void* memory, Bytes size) {
  auto* begin = static_cast<std::byte*>(memory);
  std::size_t bytes = InPages(size);
  MutexLock lock(mutex_);
  kept_ += bytes;
  auto after = pieces_.lower_bound(begin);
  if (after != pieces_.end() && begin + bytes == after->first) {
    bytes += after->second;
    after = pieces_.erase(after);
  }
  if (after != pieces_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      before->second += bytes;
      return;
    }
  }
  pieces_.emplace_hint(after, begin, bytes);
}

void PagePool::KeepAtMost(Bytes bytes) {
  const std::size_t most = static_cast<std::size_t>(std::max<std::int64_t>(0, bytes.count)) / kPage * kPage;
  std::vector<std::pair<std::byte*, std::size_t>> leaving;
  {
    MutexLock lock(mutex_);
    while (kept_ > most) {
      const auto smallest =
          std::min_element(pieces_.begin(), pieces_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
      const std::size_t part = std::min(smallest->second, kept_ - most);
      leaving.emplace_back(smallest->first + (smallest->second - part), part);
      smallest->second -= part;
      kept_ -= part;
      if (smallest->second == 0) pieces_.erase(smallest);
    }
  }
  for (const auto& [memory, size] : leaving) ::munmap(memory, size);
}

Bytes PagePool::kept() const {
  MutexLock lock(mutex_);
  return {static_cast<std::int64_t>(kept_)};
}

}  // namespace headroom
