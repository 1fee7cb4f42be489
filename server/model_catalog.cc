#include "server/model_catalog.h"

#include <absl/strings/str_cat.h>

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

void ModelCatalog::Put(CatalogEntry entry) {
  models_.Put(entry.model);
  MutexLock lock(mutex_);
  entries_[entry.model->spec->name] = std::move(entry);
}

}  // namespace headroom
