#include "batching/bucket_ladder.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

namespace headroom {
namespace {

Padding Resolve(const ModelSpec& spec, DeviceKind kind) {
  // Nothing tells such a model what is padding, so there is none: rows of equal length only.
  if (!spec.may_pad()) return Padding::kExact;
  if (spec.sequence.padding != Padding::kAuto) return spec.sequence.padding;
  // Fixed shapes buy nothing on a CPU and cost computing.
  return kind == DeviceKind::kCpu ? Padding::kMultipleOf8 : Padding::kBucket;
}

}  // namespace

BucketLadder::BucketLadder(const ModelSpec& spec, DeviceKind kind)
    : variable_length_(spec.variable_length()),
      mixes_lengths_(!spec.variable_length() || spec.may_pad()),
      largest_batch_(spec.largest_batch()),
      buckets_(spec.sequence.buckets),
      tiers_(spec.sequence.tiers),
      padding_(Resolve(spec, kind)) {}

std::int64_t BucketLadder::longest() const {
  if (!variable_length_) return 0;
  return tiers_.empty() ? buckets_.back() : tiers_.back().up_to;
}

absl::StatusOr<Placement> BucketLadder::Place(std::int64_t length) const {
  if (!variable_length_) return Placement{};
  const auto bucket = std::lower_bound(buckets_.begin(), buckets_.end(), length);
  if (bucket != buckets_.end()) return Placement{*bucket, length, false};
  for (const Tier& tier : tiers_) {
    if (length > tier.up_to) continue;
    if (tier.action == TierAction::kTruncate) return Placement{buckets_.back(), buckets_.back(), false};
    return Placement{tier.up_to, length, true};
  }
  return absl::InvalidArgumentError(absl::StrCat("the length ", length, " is over the limit of ", longest()));
}

std::int64_t BucketLadder::PaddedLength(std::int64_t bucket, std::int64_t longest) const {
  if (!variable_length_) return 0;
  if (bucket > buckets_.back()) return longest;  // a row that runs alone is not padded
  switch (padding_) {
    case Padding::kExact: return longest;
    case Padding::kMultipleOf8: return std::min(bucket, (longest + 7) / 8 * 8);
    case Padding::kBucket:
    case Padding::kAuto:  // resolved at construction
      break;
  }
  return bucket;
}

CalibrationPlan BucketLadder::ShapesToCalibrate() const {
  CalibrationPlan plan;
  if (!variable_length_) {
    plan.lengths = {{0, largest_batch_}};
    return plan;
  }
  for (const std::int64_t bucket : buckets_) plan.lengths.push_back({bucket, largest_batch_});
  for (const Tier& tier : tiers_) {
    if (tier.action == TierAction::kSolo) plan.lengths.push_back({tier.up_to, 1, /*step=*/1});  // such rows are not padded
  }
  plan.step = padding_ == Padding::kMultipleOf8 ? 8 : padding_ == Padding::kExact ? 1 : 0;
  return plan;
}

}  // namespace headroom
