#include "batching/served_model.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <limits>

namespace headroom {
namespace {

std::vector<std::int64_t> LengthsOf(const CalibrationPlan& plan) {
  std::vector<std::int64_t> lengths;
  for (const CalibrationPlan::Length& length : plan.lengths) lengths.push_back(length.length);
  return lengths;
}

}  // namespace

absl::Status ServingDevice::MarkAtRestAnew() {
  const RunPass alone = gate.EnterAlone();
  return budget->MarkAtRestAnew();
}

ModelInstance::ModelInstance(ServingDevice* serving, std::shared_ptr<const LoadedModel> model, BucketLadder lengths,
                             CalibratedEstimator held, CalibratedEstimator tensors, double safety_margin)
    : on(serving),
      loaded(std::move(model)),
      ladder(std::move(lengths)),
      estimator(std::move(held)),
      tensor_estimator(std::move(tensors)),
      learned(std::make_shared<LearnedMemory>(LengthsOf(ladder.ShapesToCalibrate()), safety_margin)),
      latency(std::make_shared<LatencyModel>(CalibratedLatency(estimator.curves()))) {}

RowWork ModelInstance::WorkOf(const Placement& placement, std::int64_t largest_batch) const {
  const std::int64_t length = ladder.PaddedLength(placement.bucket, placement.kept_length);
  const CalibratedLatency& calibrated = latency->calibrated();
  const std::int64_t rows = placement.alone ? 1 : std::min(largest_batch, calibrated.MostRows(length));
  return {calibrated.Of({rows, length}) / rows, 1'000'000 / rows};
}

Bytes StagingBytes(const ModelSpec& spec, const BatchShape& shape, DeviceKind kind) {
  Bytes total{0};
  const auto add = [&](DataType type, const std::vector<std::int64_t>& dims) {
    std::int64_t bytes = shape.rows * SizeOf(type);
    for (const std::int64_t dim : dims) bytes *= dim == kSequenceAxis ? shape.length : dim;
    total += Bytes{bytes};
  };
  for (const InputSpec& input : spec.inputs) add(input.type, input.dims);
  if (kind == DeviceKind::kCpu) return total;
  for (const OutputSpec& output : spec.outputs) add(output.type, output.dims);
  return total;
}

HostReservation ServingDevice::ReserveStaging(const ModelSpec& spec, const BatchShape& shape) const {
  return host == nullptr ? HostReservation{} : host->ReserveStaging(StagingBytes(spec, shape, device->kind()));
}

DegradationLevel ServedModel::degradation() const {
  DegradationLevel least = DegradationLevel::kFallbackModel;
  for (const ModelInstance& instance : instances) {
    least = std::min(least, instance.on == nullptr ? DegradationLevel::kNone : instance.on->degradation.load());
  }
  return least;
}

const ModelInstance* ServedModel::InstanceOn(const ServingDevice& device) const {
  const auto found =
      std::find_if(instances.begin(), instances.end(), [&](const ModelInstance& instance) { return instance.on == &device; });
  return found == instances.end() ? nullptr : &*found;
}

ServedModel::Room ServedModel::RoomFor(const Placement& placement) const {
  Room best{{std::numeric_limits<std::int64_t>::max()}, {0}};
  for (const ModelInstance& instance : instances) {
    const BatchShape one{1, instance.ladder.PaddedLength(placement.bucket, placement.kept_length)};
    const auto needs = instance.Needs(TimePoint{}).Peak(one);
    if (!needs.ok()) continue;
    const Room room{*needs, instance.on->budget->idle_budget()};
    if (room.fits()) return room;
    if (room.needs < best.needs) best = room;
  }
  return best;
}

void RefuseWaiting(const ServedModel& model, const char* why) {
  for (const QueuedRow& row : model.queue.Close()) row.request->RowFailed(absl::UnavailableError(why), Outcome::kUnavailable);
}

absl::Status OverBudgetError(Bytes needs, Bytes allowed) {
  return absl::ResourceExhaustedError(absl::StrCat("one row needs more memory than a batch may have: at least ", needs.count,
                                                   " bytes are needed, ", allowed.count, " are allowed"));
}

std::shared_ptr<const ModelSet::Models> ModelSet::All() const {
  MutexLock lock(mutex_);
  return models_;
}

void ModelSet::Add(std::shared_ptr<const ServedModel> model) {
  MutexLock lock(mutex_);
  auto changed = std::make_shared<Models>(*models_);
  changed->push_back(std::move(model));
  models_ = std::move(changed);
}

void ModelSet::Remove(const ServedModel& model) {
  MutexLock lock(mutex_);
  auto changed = std::make_shared<Models>(*models_);
  std::erase_if(*changed, [&](const auto& known) { return known.get() == &model; });
  models_ = std::move(changed);
}

}  // namespace headroom
