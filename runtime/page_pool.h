// Large pieces of memory straight from the system, and those that are kept for the next who wants some.
//
// malloc is the wrong place for tensors of megabytes: once one has been freed it takes the next ones from its heaps, of which each
// thread has one, and a heap is given back from its end only. What a batch has freed then stays resident beside what the next one
// takes, and a process that counts its tensors to the byte passes the container's limit all the same.
#pragma once

#include <cstddef>
#include <map>

#include "base/bytes.h"
#include "base/sync.h"

namespace headroom {

// Thread-safe. Sizes are rounded up to pages.
class PagePool {
 public:
  PagePool() = default;
  // What is kept goes; what was taken stays with whoever took it.
  ~PagePool() { KeepAtMost({0}); }
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // At least `size` bytes at a page's beginning, out of what is kept where there is a piece that is large enough; null where the
  // system has no more. What the bytes hold is anything.
  void* Take(Bytes size) EXCLUDES(mutex_);
  // Keeps a piece of this size that was taken. Neighbours become one piece.
  void Give(void* memory, Bytes size) EXCLUDES(mutex_);
  // Gives to the system what is kept beyond `bytes`, the smallest pieces first: they are of the least use.
  void KeepAtMost(Bytes bytes) EXCLUDES(mutex_);

  Bytes kept() const EXCLUDES(mutex_);

 private:
  using Pieces = std::map<std::byte*, std::size_t>;  // by address; no two touch

  mutable Mutex mutex_;
  Pieces pieces_ GUARDED_BY(mutex_);
  std::size_t kept_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headroom
