#include "server/abandoned_calls.h"

#include <algorithm>

namespace headroom {
namespace {

constexpr double kBurstSeconds = 10;
// More connections than that are not told apart for long: those that have been quiet are forgotten.
constexpr std::size_t kMostPeers = 10'000;

}  // namespace

bool AbandonedCalls::Note(const std::string& peer, TimePoint now) {
  if (a_second_ == 0) return false;
  MutexLock lock(mutex_);
  if (buckets_.size() >= kMostPeers) ForgetQuietOnes(now);
  Bucket& bucket = buckets_[peer];
  bucket.calls = std::max(0.0, bucket.calls - Seconds(now - bucket.at) * a_second_) + 1;
  bucket.at = now;
  if (bucket.calls <= kBurstSeconds * a_second_) return false;
  // Whoever comes by this address next begins anew.
  buckets_.erase(peer);
  return true;
}

void AbandonedCalls::ForgetQuietOnes(TimePoint now) {
  std::erase_if(buckets_, [&](const auto& each) { return Seconds(now - each.second.at) > kBurstSeconds; });
  // All of them are busy giving up: a new beginning for all is the least harm.
  if (buckets_.size() >= kMostPeers) buckets_.clear();
}

}  // namespace headroom
