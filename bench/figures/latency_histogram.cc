#include "bench/figures/latency_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace headroom {
namespace {

// Each power of two is divided into 2^7 buckets of the same width; below 2^8 nanoseconds every one has a bucket of its own.
constexpr int kDivisionBits = 7;
constexpr std::int64_t kDivisions = std::int64_t{1} << kDivisionBits;
constexpr int kTopBits = 40;
constexpr std::int64_t kLongest = (std::int64_t{1} << kTopBits) - 1;
constexpr std::int64_t kBuckets = (kTopBits - kDivisionBits + 1) * kDivisions;

// How many powers of two wide the bucket of `nanoseconds` is.
int WidthBits(std::int64_t nanoseconds) {
  const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(nanoseconds)));
  return std::max(0, bits - kDivisionBits - 1);
}

std::int64_t BucketOf(std::int64_t nanoseconds) {
  const int width = WidthBits(nanoseconds);
  return width * kDivisions + (nanoseconds >> width);
}

// The longest time that falls into a bucket.
std::int64_t TopOf(std::int64_t bucket) {
  if (bucket < 2 * kDivisions) return bucket;
  const std::int64_t width = bucket / kDivisions - 1;
  return ((bucket - width * kDivisions + 1) << width) - 1;
}

}  // namespace

LatencyHistogram::LatencyHistogram() : buckets_(kBuckets) {}

void LatencyHistogram::Record(Duration time) {
  time = std::max(time, Duration::zero());
  ++buckets_[static_cast<std::size_t>(BucketOf(std::min<std::int64_t>(time.count(), kLongest)))];
  ++count_;
  max_ = std::max(max_, time);
  sum_ += static_cast<double>(time.count());
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

Duration LatencyHistogram::mean() const {
  return count_ == 0 ? Duration::zero() : Duration(std::llround(sum_ / static_cast<double>(count_)));
}

Duration LatencyHistogram::Quantile(double share) const {
  if (count_ == 0) return Duration::zero();
  const auto wanted =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(share * static_cast<double>(count_))), 1, count_);
  std::int64_t seen = 0;
  for (std::int64_t bucket = 0; bucket < kBuckets; ++bucket) {
    seen += buckets_[static_cast<std::size_t>(bucket)];
    if (seen >= wanted) return std::min(max_, Duration(TopOf(bucket)));
  }
  return max_;
}

}  // namespace headroom
