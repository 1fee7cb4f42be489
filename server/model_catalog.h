// What is served, as clients may ask about it: the models for batching, and the configuration of each for the wire.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

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
  // From now on new requests find this model; those of one that it replaces, which is returned, are still worked on. Empty where
  // it replaces none.
  CatalogEntry Put(CatalogEntry entry) EXCLUDES(mutex_);
  // New requests no longer find it; the rest as Put. Empty where nothing is served by this name.
  CatalogEntry Take(const std::string& name) EXCLUDES(mutex_);
  // A model that was replaced or taken out has no rows left, and its queue is closed: workers may forget it.
  void Forget(const ServedModel& model) { models_.Remove(model); }
  // All that new requests can find, by name.
  std::vector<CatalogEntry> Served() const EXCLUDES(mutex_);

  // What workers look at.
  const ModelSet& models() const { return models_; }

 private:
  ModelSet models_;
  mutable Mutex mutex_;
  std::map<std::string, CatalogEntry> entries_ GUARDED_BY(mutex_);
};

}  // namespace headroom
