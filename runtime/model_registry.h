// The one way to load a model: a (model, version, device) is loaded once, however many ask for it at once, and is shared until
// the last holder lets go.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "base/sync.h"
#include "runtime/device.h"

namespace headroom {

// Thread-safe. Constant-time but for the first caller, who loads while later ones wait for the result.
class ModelRegistry {
 public:
  // Makes of what was loaded what is to be kept: the model itself, or another form of it.
  using Settle = std::function<absl::StatusOr<std::shared_ptr<const LoadedModel>>(std::shared_ptr<const LoadedModel>)>;

  // The loaded model, loading it where nobody holds it yet, and settling it where `settle` is given. A failed load is not
  // remembered: the next caller tries again.
  absl::StatusOr<std::shared_ptr<const LoadedModel>> Load(Device& device, const std::filesystem::path& file, const ModelSpec& spec,
                                                          std::int64_t version, const Settle& settle = nullptr) EXCLUDES(mutex_);

 private:
  using Key = std::tuple<std::string, std::int64_t, const Device*>;
  // One load at a time per key. Kept when the model is gone: a few bytes for each version ever served.
  struct Entry {
    Mutex loading;
    std::weak_ptr<const LoadedModel> model GUARDED_BY(loading);
  };

  Mutex mutex_;
  std::map<Key, std::shared_ptr<Entry>> entries_ GUARDED_BY(mutex_);
};

}  // namespace headroom
