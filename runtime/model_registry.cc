#include "runtime/model_registry.h"

namespace headroom {

absl::StatusOr<std::shared_ptr<const LoadedModel>> ModelRegistry::Load(Device& device, const std::filesystem::path& file,
                                                                       const ModelSpec& spec, std::int64_t version,
                                                                       const Settle& settle) {
  std::shared_ptr<Entry> entry;
  {
    MutexLock lock(mutex_);
    std::shared_ptr<Entry>& found = entries_[{spec.name, version, &device}];
    if (found == nullptr) found = std::make_shared<Entry>();
    entry = found;
  }
  // Held while loading, so that whoever asks meanwhile waits for this load instead of starting a second one.
  MutexLock lock(entry->loading);
  if (auto model = entry->model.lock()) return model;
  auto loaded = device.Load(file, spec);
  if (loaded.ok() && settle != nullptr) loaded = settle(*std::move(loaded));
  if (loaded.ok()) entry->model = *loaded;
  return loaded;
}

}  // namespace headroom
