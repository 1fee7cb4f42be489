#include "batching/queue_load.h"

namespace headroom {
namespace {

template <class Map>
void Subtract(Map& map, const typename Map::key_type& key, const Load& row) {
  const auto found = map.find(key);
  found->second -= row;
  if (found->second.rows == 0) map.erase(found);
}

}  // namespace

Load& Load::operator+=(const Load& other) {
  rows += other.rows;
  bytes += other.bytes;
  compute += other.compute;
  batch_millionths += other.batch_millionths;
  return *this;
}

Load& Load::operator-=(const Load& other) {
  rows -= other.rows;
  bytes -= other.bytes;
  compute -= other.compute;
  batch_millionths -= other.batch_millionths;
  return *this;
}

void QueueLoad::Add(std::int64_t priority, CallerId caller, const Load& row) {
  // Places first: where there is no memory for one, nothing has been added.
  Load& level = by_priority_[priority];
  Load* const of_caller = caller == 0 ? nullptr : &by_caller_[caller];
  total_ += row;
  level += row;
  if (of_caller != nullptr) *of_caller += row;
}

void QueueLoad::Remove(std::int64_t priority, CallerId caller, const Load& row) {
  total_ -= row;
  Subtract(by_priority_, priority, row);
  if (caller != 0) Subtract(by_caller_, caller, row);
}

Load QueueLoad::UpTo(std::int64_t priority) const {
  Load sum;
  for (const auto& [level, load] : by_priority_) {
    if (level > priority) break;
    sum += load;
  }
  return sum;
}

Load QueueLoad::Of(CallerId caller) const {
  const auto found = by_caller_.find(caller);
  return found == by_caller_.end() ? Load{} : found->second;
}

bool QueueTotals::TryAdd(std::int64_t rows, Bytes bytes) {
  MutexLock lock(mutex_);
  if (bounds_.rows > 0 && rows > bounds_.rows - rows_) return false;
  if (bounds_.bytes > Bytes{0} && bytes > bounds_.bytes - bytes_) return false;
  rows_ += rows;
  bytes_ += bytes;
  return true;
}

void QueueTotals::Add(std::int64_t rows, Bytes bytes) {
  MutexLock lock(mutex_);
  rows_ += rows;
  bytes_ += bytes;
}

void QueueTotals::Remove(std::int64_t rows, Bytes bytes) {
  MutexLock lock(mutex_);
  rows_ -= rows;
  bytes_ -= bytes;
}

}  // namespace headroom
