#include "server/model_file.h"

#include <absl/strings/str_cat.h>

#include "base/status_macros.h"
#include "server/sha256.h"

namespace headroom {
namespace {

bool Same(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

}  // namespace

absl::StatusOr<std::shared_ptr<const ModelFile>> ModelFile::Hash(Descriptor descriptor) {
  struct stat status = {};
  if (fstat(descriptor.number(), &status) != 0) return absl::InternalError("cannot be read");
  ASSIGN_OR_RETURN(std::string sha256, Sha256(descriptor.number()));
  return std::shared_ptr<const ModelFile>(new ModelFile(std::move(descriptor), status, std::move(sha256)));
}

std::string ModelFile::path() const { return absl::StrCat("/proc/self/fd/", descriptor_.number()); }

absl::Status ModelFile::CheckUnchanged() const {
  struct stat now = {};
  const bool same = fstat(descriptor_.number(), &now) == 0 && now.st_size == hashed_.st_size && Same(now.st_mtim, hashed_.st_mtim);
  if (same) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the model file was changed while it was loaded: put a new version into a folder of its own");
}

}  // namespace headroom
