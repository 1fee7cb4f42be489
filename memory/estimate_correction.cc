#include "memory/estimate_correction.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/status_macros.h"

namespace headroom {
namespace {

double Ratio(Bytes actual, Bytes estimated) {
  if (estimated.count <= 0) return 1;
  const double ratio = static_cast<double>(actual.count) / static_cast<double>(estimated.count);
  return std::clamp(ratio, 0.0, EstimateCorrection::kLargestRatio);
}

}  // namespace

EstimateCorrection::EstimateCorrection(std::vector<std::int64_t> class_lengths, double safety_margin)
    : least_(1 + std::max(0.0, safety_margin)) {
  if (class_lengths.empty()) class_lengths.push_back(0);
  MutexLock lock(mutex_);
  for (const std::int64_t length : class_lengths) classes_.push_back({.length = length});
  Publish();
}

bool EstimateCorrection::Observe(std::int64_t length, Bytes estimated, Bytes actual) {
  const double ratio = Ratio(actual, estimated);
  MutexLock lock(mutex_);
  Class& of = ClassOf(length);
  const bool short_of = ratio > FactorOf(of);
  of.quantile += ratio > of.quantile ? kStep * kLevel : -kStep * (1 - kLevel);
  of.largest = std::max(of.largest, ratio);
  // Ratios start near 1: there is no need to climb there from 0.
  if (!of.known) of.quantile = std::min(ratio, least_);
  of.known = true;
  Publish();
  return short_of;
}

void EstimateCorrection::ObserveAtLeast(std::int64_t length, Bytes estimated, Bytes at_least) {
  const double ratio = Ratio(at_least, estimated);
  if (ratio <= 1) return;
  MutexLock lock(mutex_);
  Class& of = ClassOf(length);
  of.largest = std::max(of.largest, ratio);
  of.quantile = std::max(of.quantile, std::min(ratio, least_));
  of.known = true;
  Publish();
}

std::shared_ptr<const EstimateCorrection::Factors> EstimateCorrection::factors() const {
  MutexLock lock(mutex_);
  return factors_;
}

EstimateCorrection::Factors::const_iterator EstimateCorrection::ClassAt(const Factors& factors, std::int64_t length) {
  const auto found = std::find_if(factors.begin(), factors.end(), [&](const ClassFactor& of) { return of.length >= length; });
  return found == factors.end() ? std::prev(found) : found;
}

EstimateCorrection::Class& EstimateCorrection::ClassOf(std::int64_t length) {
  return classes_[static_cast<std::size_t>(ClassAt(*factors_, length) - factors_->begin())];
}

double EstimateCorrection::FactorOf(const Class& of) const {
  if (of.known) return std::max({least_, of.largest, of.quantile});
  double factor = least_;
  for (const Class& other : classes_) {
    if (other.known) factor = std::max({factor, other.largest, other.quantile});
  }
  return factor;
}

void EstimateCorrection::Publish() {
  Factors factors;
  factors.reserve(classes_.size());
  for (const Class& of : classes_) factors.push_back({of.length, FactorOf(of)});
  factors_ = std::make_shared<const Factors>(std::move(factors));
}

ReservationEstimator::ReservationEstimator(const MemoryEstimator& estimator, const LearnedMemory& learned, TimePoint now)
    : estimator_(estimator), learned_(learned), now_(now), factors_(learned.correction.factors()) {}

absl::StatusOr<Bytes> ReservationEstimator::Peak(BatchShape shape) const {
  if (shape.rows > learned_.ceilings.MaxRows(shape.length, now_)) return Bytes{std::numeric_limits<std::int64_t>::max()};
  ASSIGN_OR_RETURN(const Bytes estimate, estimator_.Peak(shape));
  const auto own = EstimateCorrection::ClassAt(*factors_, shape.length);
  Bytes needs = Scale(estimate, own->factor);
  // A longer batch never needs less than a shorter one, even where only the shorter one's class has been found short.
  for (auto shorter = factors_->begin(); shorter != own; ++shorter) {
    if (shorter->factor <= own->factor) continue;
    ASSIGN_OR_RETURN(const Bytes at_shorter, estimator_.Peak({shape.rows, shorter->length}));
    needs = std::max(needs, Scale(at_shorter, shorter->factor));
  }
  return needs;
}

}  // namespace headroom
