// What is served, as clients may ask about it: the models for batching, and the configuration of each for the wire.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/sync.h"
#include "batching/served_model.h"
#include "proto/model_config.pb.h"

namespace headroom {

struct CatalogEntry {
  std::shared_ptr<const ServedModel> model;
  std::shared_ptr<const inference::ModelConfig> config;
};

// Thread-safe.
class ModelCatalog {
 public:
  // The served model of this name and version; an empty version is whichever is served. NOT_FOUND otherwise.
  absl::StatusOr<CatalogEntry> Find(const std::string& name, const std::string& version) const EXCLUDES(mutex_);
  void Put(CatalogEntry entry) EXCLUDES(mutex_);

  // What workers look at.
  const ModelSet& models() const { return models_; }

 private:
  ModelSet models_;
  mutable Mutex mutex_;
  std::map<std::string, CatalogEntry> entries_ GUARDED_BY(mutex_);
};

}  // namespace headroom
