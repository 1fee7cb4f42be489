#include "memory/shape_ceiling.h"

#include <algorithm>
#include <limits>

namespace headroom {
namespace {

constexpr std::int64_t kNoCeiling = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::int64_t ShapeCeilings::Ceiling::MaxRows(TimePoint now) const {
  std::int64_t rows = allowed;
  for (TimePoint relief = After(since, kRelief); relief <= now; relief = After(relief, kRelief)) {
    rows *= 2;
    if (rows >= failed) return kNoCeiling;
  }
  return rows;
}

void ShapeCeilings::Lower(BatchShape shape, TimePoint now) {
  if (shape.rows < 2) return;
  MutexLock lock(mutex_);
  std::erase_if(by_length_, [&](const auto& entry) { return entry.second.MaxRows(now) == kNoCeiling; });
  Ceiling& ceiling = by_length_[shape.length];
  // Of a shape that fails again when it is tried after a while, the first failure is remembered: the way back is as long.
  ceiling = {shape.rows / 2, std::max(ceiling.failed, shape.rows), now};
}

std::int64_t ShapeCeilings::MaxRows(std::int64_t length, TimePoint now) const {
  MutexLock lock(mutex_);
  std::int64_t rows = kNoCeiling;
  for (auto entry = by_length_.begin(); entry != by_length_.end() && entry->first <= length; ++entry) {
    rows = std::min(rows, entry->second.MaxRows(now));
  }
  return rows;
}

int ShapeCeilings::count(TimePoint now) const {
  MutexLock lock(mutex_);
  return static_cast<int>(std::count_if(by_length_.begin(), by_length_.end(),
                                        [&](const auto& entry) { return entry.second.MaxRows(now) != kNoCeiling; }));
}

}  // namespace headroom
