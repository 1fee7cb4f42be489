#include "server/model_catalog.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "server/client_text.h"

namespace headroom {

absl::StatusOr<CatalogEntry> ModelCatalog::Find(const std::string& name, const std::string& version) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return absl::NotFoundError(absl::StrCat("no model is served by the name ", Quoted(name)));
  const std::string served = absl::StrCat(found->second.model->version);
  if (!version.empty() && version != served) {
    return absl::NotFoundError(
        absl::StrCat("model ", Quoted(name), " is not served in version ", Quoted(version), ", but in version ", served));
  }
  return found->second;
}

CatalogEntry ModelCatalog::Put(CatalogEntry entry) {
  models_.Add(entry.model);
  MutexLock lock(mutex_);
  CatalogEntry& place = entries_[entry.model->spec->name];
  return std::exchange(place, std::move(entry));
}

CatalogEntry ModelCatalog::Take(const std::string& name) {
  MutexLock lock(mutex_);
  auto taken = entries_.extract(name);
  return taken.empty() ? CatalogEntry{} : std::move(taken.mapped());
}

std::vector<CatalogEntry> ModelCatalog::Served() const {
  MutexLock lock(mutex_);
  std::vector<CatalogEntry> served;
  for (const auto& [name, entry] : entries_) served.push_back(entry);
  return served;
}

}  // namespace headroom
