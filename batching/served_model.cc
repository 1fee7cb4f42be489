#include "batching/served_model.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <limits>

namespace headroom {

const ModelInstance* ServedModel::InstanceOn(const ServingDevice& device) const {
  const auto found =
      std::find_if(instances.begin(), instances.end(), [&](const ModelInstance& instance) { return instance.on == &device; });
  return found == instances.end() ? nullptr : &*found;
}

ServedModel::Room ServedModel::RoomFor(const Placement& placement) const {
  Room best{{std::numeric_limits<std::int64_t>::max()}, {0}};
  for (const ModelInstance& instance : instances) {
    const BatchShape one{1, instance.ladder.PaddedLength(placement.bucket, placement.kept_length)};
    const auto needs = EstimatorWithMargin(instance.estimator, spec->safety_margin).Peak(one);
    if (!needs.ok()) continue;
    const Room room{*needs, instance.on->budget->idle_budget()};
    if (room.fits()) return room;
    if (room.needs < best.needs) best = room;
  }
  return best;
}

absl::Status OverBudgetError(Bytes needs, Bytes allowed) {
  return absl::ResourceExhaustedError(absl::StrCat("one row needs more memory than a batch may have: at least ", needs.count,
                                                   " bytes are needed, ", allowed.count, " are allowed"));
}

std::shared_ptr<const ServedModel> ModelSet::Find(const std::string& name) const {
  const std::shared_ptr<const Models> models = All();
  const auto found = models->find(name);
  return found == models->end() ? nullptr : found->second;
}

std::shared_ptr<const ModelSet::Models> ModelSet::All() const {
  MutexLock lock(mutex_);
  return models_;
}

void ModelSet::Put(std::shared_ptr<const ServedModel> model) {
  MutexLock lock(mutex_);
  auto changed = std::make_shared<Models>(*models_);
  (*changed)[model->spec->name] = std::move(model);
  models_ = std::move(changed);
}

}  // namespace headroom
