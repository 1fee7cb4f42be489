#include "server/traffic_mix.h"

#include <algorithm>
#include <cmath>

namespace headroom {
namespace {

// The classes of a ladder, without rows.
std::vector<TrafficClass> ClassesOf(const std::vector<Tier>& tiers, const std::vector<std::int64_t>& buckets) {
  std::vector<TrafficClass> classes;
  std::int64_t from = 1;
  const auto add = [&](std::int64_t up_to, Treatment treatment, std::int64_t bucket) {
    TrafficClass& made = classes.emplace_back();
    made.from = from;
    made.up_to = up_to;
    made.treatment = treatment;
    made.bucket = bucket;
    from = up_to + 1;
  };
  for (const std::int64_t bucket : buckets) add(bucket, Treatment::kBatched, bucket);
  for (const Tier& tier : tiers) {
    const bool alone = tier.action == TierAction::kSolo;
    add(tier.up_to, alone ? Treatment::kAlone : Treatment::kTruncated, alone ? tier.up_to : buckets.back());
  }
  add(0, Treatment::kRefused, 0);
  return classes;
}

// Lengths in the middle of `rows` equal shares of the weights in [from, up_to].
std::vector<std::int64_t> TypicalLengths(const TrafficLengths& traffic, const TrafficClass& of, double weight, std::int64_t rows) {
  std::vector<std::int64_t> lengths;
  auto at = traffic.weights.lower_bound(of.from);
  double seen = at->second;
  for (std::int64_t i = 0; i < rows; ++i) {
    const double wanted = (static_cast<double>(i) + 0.5) / static_cast<double>(rows) * weight;
    for (auto next = std::next(at); seen < wanted && next != traffic.weights.end() && next->first <= of.up_to; ++next) {
      at = next;
      seen += at->second;
    }
    lengths.push_back(at->first);
  }
  return lengths;
}

// Cuts ascending lengths into batches: the longest last, each as large as may be.
std::vector<WindowBatch> BatchesOf(const std::vector<std::int64_t>& lengths, const TrafficClass& of, const BucketLadder& ladder) {
  std::vector<WindowBatch> batches;
  std::vector<std::int64_t> waiting;
  const auto close = [&] {
    WindowBatch& batch = batches.emplace_back();
    for (const std::int64_t length : waiting) batch.useful_tokens += length;
    batch.shape = {static_cast<std::int64_t>(waiting.size()), ladder.PaddedLength(of.bucket, waiting.back())};
    waiting.clear();
  };
  for (const std::int64_t length : lengths) {
    // A class that was cut has the length that is kept.
    const std::int64_t kept = of.treatment == Treatment::kTruncated ? of.bucket : length;
    const bool full = static_cast<std::int64_t>(waiting.size()) == of.largest_batch;
    if (!waiting.empty() && (full || (!ladder.mixes_lengths() && waiting.back() != kept))) close();
    waiting.push_back(kept);
  }
  if (!waiting.empty()) close();
  return batches;
}

struct Sums {
  double rows = 0;
  double useful = 0;
  double computed = 0;
};

Sums SumsOf(const std::vector<WindowBatch>& batches) {
  Sums sums;
  for (const WindowBatch& batch : batches) {
    sums.rows += static_cast<double>(batch.shape.rows);
    sums.useful += static_cast<double>(batch.useful_tokens);
    sums.computed += static_cast<double>(batch.shape.rows) * static_cast<double>(batch.shape.length);
  }
  return sums;
}

}  // namespace

const char* NameOf(Treatment treatment) {
  switch (treatment) {
    case Treatment::kBatched: return "batched";
    case Treatment::kTruncated: return "truncated";
    case Treatment::kAlone: return "alone";
    case Treatment::kRefused: break;
  }
  return "refused";
}

TrafficMix MixOf(const TrafficLengths& traffic, const std::vector<Tier>& tiers, const std::vector<std::int64_t>& buckets,
                 const BucketLadder& ladder, const std::function<std::int64_t(std::int64_t bucket)>& largest) {
  TrafficMix mix;
  mix.classes = ClassesOf(tiers, buckets);
  double useful = 0;
  double computed = 0;
  for (TrafficClass& of : mix.classes) {
    double weight = 0;
    const auto end = of.up_to == 0 ? traffic.weights.end() : traffic.weights.upper_bound(of.up_to);
    for (auto at = traffic.weights.lower_bound(of.from); at != end; ++at) weight += at->second;
    of.share = weight / traffic.total;
    if (of.treatment == Treatment::kRefused) {
      mix.refused_share = of.share;
      continue;
    }
    of.largest_batch = largest(of.bucket);
    if (of.treatment == Treatment::kAlone) of.largest_batch = std::min<std::int64_t>(of.largest_batch, 1);
    if (of.largest_batch == 0) mix.unfit_share += of.share;
    if (of.largest_batch == 0 || weight <= 0) continue;
    const auto rows = std::max<std::int64_t>(1, std::llround(of.share * static_cast<double>(kWindowRows)));
    of.batches = BatchesOf(TypicalLengths(traffic, of, weight, rows), of, ladder);
    const Sums sums = SumsOf(of.batches);
    useful += of.share * sums.useful / sums.rows;
    computed += of.share * sums.computed / sums.rows;
  }
  mix.useful_share = computed > 0 ? useful / computed : 0;
  return mix;
}

double RowsPerSecond(const TrafficMix& mix, const std::function<double(BatchShape)>& seconds) {
  double served = 0;
  double taken = 0;
  for (const TrafficClass& of : mix.classes) {
    if (of.batches.empty()) continue;
    double window = 0;
    for (const WindowBatch& batch : of.batches) window += seconds(batch.shape);
    served += of.share;
    taken += of.share * window / SumsOf(of.batches).rows;
  }
  return taken > 0 ? served / taken : 0;
}

}  // namespace headroom
