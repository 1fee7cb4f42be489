// How often each true length has come, in bounded memory.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "batching/bucket_tuning.h"

namespace headroom {

// Thread-safe, without a lock: 36 KiB of counters that only rise. What was counted meanwhile may be missing from Counts.
//
// Lengths up to kExact are kept as they are. Longer ones share a counter with up to 1.6 % of their length, and are told as the
// longest of those; beyond kLongest all are told as that.
class LengthHistogram {
 public:
  static constexpr std::int64_t kExact = 4096;
  static constexpr std::int64_t kLongest = std::int64_t{1} << 20;  // the longest bucket that a model may have

  // A row of `length` ≥ 1; a shorter one is not counted.
  void Add(std::int64_t length) {
    if (length >= 1) counts_[CellOf(length)].fetch_add(1, std::memory_order_relaxed);
  }

  LengthCounts Counts() const {
    LengthCounts counts;
    for (std::size_t cell = 0; cell < kCells; ++cell) {
      const std::int64_t rows = counts_[cell].load(std::memory_order_relaxed);
      if (rows > 0) counts.push_back({LengthOf(cell), static_cast<double>(rows)});
    }
    return counts;
  }

 private:
  // Each doubling beyond kExact has so many counters.
  static constexpr int kCellBits = 6;
  static constexpr int kExactBits = std::countr_zero(static_cast<std::uint64_t>(kExact));
  static constexpr int kLongestBits = std::countr_zero(static_cast<std::uint64_t>(kLongest));
  static constexpr std::size_t kCells = kExact + (std::size_t{kLongestBits - kExactBits} << kCellBits);

  static std::size_t CellOf(std::int64_t length) {
    if (length <= kExact) return static_cast<std::size_t>(length - 1);
    if (length >= kLongest) return kCells - 1;
    const auto below = static_cast<std::uint64_t>(length - 1);
    const int doubling = static_cast<int>(std::bit_width(below)) - 1;  // kExactBits or more
    const std::uint64_t within = (below - (std::uint64_t{1} << doubling)) >> (doubling - kCellBits);
    return static_cast<std::size_t>(kExact) + (static_cast<std::size_t>(doubling - kExactBits) << kCellBits) + within;
  }
  // The longest that falls into the cell.
  static std::int64_t LengthOf(std::size_t cell) {
    if (cell < static_cast<std::size_t>(kExact)) return static_cast<std::int64_t>(cell) + 1;
    const std::size_t beyond = cell - static_cast<std::size_t>(kExact);
    const int doubling = kExactBits + static_cast<int>(beyond >> kCellBits);
    const auto within = static_cast<std::int64_t>(beyond & ((std::size_t{1} << kCellBits) - 1));
    return (std::int64_t{1} << doubling) + ((within + 1) << (doubling - kCellBits));
  }

  std::array<std::atomic<std::int64_t>, kCells> counts_{};
};

}  // namespace headroom
