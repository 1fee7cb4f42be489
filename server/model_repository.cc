#include "server/model_repository.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "runtime/torch/extra_file.h"
#include "server/model_config_loader.h"
#include "server/model_config_validation.h"
#include "server/model_file.h"
#include "server/model_manifest.h"
#include "server/sha256.h"

namespace headroom {
namespace {

constexpr const char* kConfigFile = "config.pbtxt";
constexpr const char* kModelFile = "model.pt";
constexpr off_t kMaxConfigBytes = 1 << 20;

std::string ErrorText(int error) {
  switch (error) {
    case ENOENT: return "is missing";
    case ELOOP: return "is a symbolic link, which is not followed";
    case ENOTDIR: return "is not a folder";
    default: return absl::StrCat("cannot be opened: ", std::strerror(error));
  }
}

// Opens an entry of an open folder, and never follows a link there. The text of an error starts with the entry's name.
absl::StatusOr<Descriptor> OpenIn(const Descriptor& folder, const std::string& name, int flags) {
  struct stat entry = {};
  int error = 0;
  // O_DIRECTORY with O_NOFOLLOW tells a link as "not a folder": look first, for the sake of the text. The open decides.
  if (fstatat(folder.number(), name.c_str(), &entry, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(entry.st_mode)) error = ELOOP;
  // O_NONBLOCK: opening a named pipe must not wait for its writer.
  const int number =
      error != 0 ? -1 : openat(folder.number(), name.c_str(), flags | O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (number >= 0) return Descriptor(number);
  if (error == 0) error = errno;
  const std::string text = absl::StrCat(name, " ", ErrorText(error));
  return error == ENOENT ? absl::NotFoundError(text) : absl::InvalidArgumentError(text);
}

absl::StatusOr<Descriptor> OpenFileIn(const Descriptor& folder, const std::string& name) {
  ASSIGN_OR_RETURN(Descriptor file, OpenIn(folder, name, 0));
  struct stat status = {};
  if (fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is not a file"));
  }
  return file;
}

// The names in a folder, sorted.
absl::StatusOr<std::vector<std::string>> NamesIn(const Descriptor& folder) {
  const int again = openat(folder.number(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return absl::InvalidArgumentError(absl::StrCat("cannot be listed: ", std::strerror(errno)));
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(fdopendir(again), &closedir);
  if (listing == nullptr) {
    close(again);
    return absl::InternalError("cannot be listed");
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

enum class EntryKind { kFolder, kLink, kOther };

EntryKind KindOf(const Descriptor& folder, const std::string& name) {
  struct stat status = {};
  if (fstatat(folder.number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return EntryKind::kOther;
  if (S_ISLNK(status.st_mode)) return EntryKind::kLink;
  return S_ISDIR(status.st_mode) ? EntryKind::kFolder : EntryKind::kOther;
}

absl::StatusOr<std::string> ReadText(const Descriptor& folder, const std::string& name) {
  ASSIGN_OR_RETURN(const Descriptor file, OpenFileIn(folder, name));
  std::string text;
  std::vector<char> block(1 << 16);
  while (true) {
    const ssize_t got = read(file.number(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::InvalidArgumentError(absl::StrCat(name, " cannot be read: ", std::strerror(errno)));
    if (got == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(got));
    if (static_cast<off_t>(text.size()) > kMaxConfigBytes) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is longer than ", kMaxConfigBytes, " bytes"));
    }
  }
}

// The number that a version's folder is named by, or nothing where the name is none.
std::optional<std::int64_t> VersionOf(const std::string& name) {
  std::int64_t version = 0;
  const bool digits = std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || name.empty() || name[0] == '0' || !absl::SimpleAtoi(name, &version)) return std::nullopt;
  return version;
}

bool Allows(const inference::ModelVersionPolicy& policy, std::int64_t version) {
  if (!policy.has_specific()) return true;
  const auto& versions = policy.specific().versions();
  return std::find(versions.begin(), versions.end(), version) != versions.end();
}

// The versions that have a folder, ascending.
absl::StatusOr<std::vector<std::int64_t>> VersionsIn(const Descriptor& folder, std::vector<std::string>& warnings) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  std::vector<std::int64_t> versions;
  for (const std::string& name : names) {
    const EntryKind kind = KindOf(folder, name);
    const std::optional<std::int64_t> version = VersionOf(name);
    if (kind == EntryKind::kLink && version) {
      warnings.push_back(absl::StrCat("version ", name, " is a symbolic link, which is not followed"));
    } else if (kind == EntryKind::kFolder && !version) {
      warnings.push_back(
          absl::StrCat("folder ", DoubleQuoted(name), " is left out: versions are numbers from 1, without leading zeros"));
    } else if (kind == EntryKind::kFolder) {
      versions.push_back(*version);
    }
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

// The newest version that the policy allows. A version without its file is an error, not a reason to serve an older one.
absl::StatusOr<std::int64_t> NewestVersion(const std::vector<std::int64_t>& versions, const inference::ModelVersionPolicy& policy) {
  if (versions.empty()) {
    return absl::InvalidArgumentError("holds no version: a folder named 1, or a higher number, with model.pt in it");
  }
  const auto newest = std::find_if(versions.rbegin(), versions.rend(), [&](std::int64_t v) { return Allows(policy, v); });
  if (newest != versions.rend()) return *newest;
  return absl::InvalidArgumentError("config.pbtxt: version_policy.specific.versions: none of them is there");
}

absl::StatusOr<Descriptor> OpenModelFile(const Descriptor& folder, std::int64_t version) {
  const auto with_place = [&](const absl::Status& status) {
    return absl::InvalidArgumentError(absl::StrCat("version ", version, ": ", std::string(status.message())));
  };
  const absl::StatusOr<Descriptor> version_folder = OpenIn(folder, absl::StrCat(version), O_DIRECTORY);
  if (!version_folder.ok()) return with_place(version_folder.status());
  absl::StatusOr<Descriptor> file = OpenFileIn(*version_folder, kModelFile);
  if (!file.ok()) return with_place(file.status());
  return file;
}

std::string FileOf(const std::string& name, std::int64_t version) { return absl::StrCat(name, "/", version, "/", kModelFile); }

// One model's folder while it is read.
struct ModelFolder {
  const Descriptor& folder;
  const std::string& name;
  const ModelManifest* manifest;  // null: whatever is there may be used
};

// The file of a version, hashed and known to the manifest.
absl::StatusOr<std::shared_ptr<const ModelFile>> HashModelFile(const ModelFolder& in, std::int64_t version) {
  ASSIGN_OR_RETURN(Descriptor opened, OpenModelFile(in.folder, version));
  auto file = ModelFile::Hash(std::move(opened));
  if (!file.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("version ", version, ": ", kModelFile, " ", file.status().message()));
  }
  if (in.manifest != nullptr) RETURN_IF_ERROR(in.manifest->Check(FileOf(in.name, version), (*file)->sha256()));
  return file;
}

struct ConfigText {
  std::string text;
  std::string place;  // where it lies, for the text of its faults
};

absl::Status CheckListed(const ModelFolder& in, const std::string& config) {
  if (in.manifest == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string sha256, Sha256Of(config));
  return in.manifest->Check(absl::StrCat(in.name, "/", kConfigFile), sha256);
}

// The configuration beside the versions, or else the one that the newest of them carries. The newest, whatever the policy: that
// stands inside.
absl::StatusOr<ConfigText> ReadConfig(const ModelFolder& in, const std::vector<std::int64_t>& versions) {
  absl::StatusOr<std::string> beside = ReadText(in.folder, kConfigFile);
  if (beside.ok()) {
    RETURN_IF_ERROR(CheckListed(in, *beside));
    return ConfigText{*std::move(beside), kConfigFile};
  }
  if (!absl::IsNotFound(beside.status()) || versions.empty()) return beside.status();
  const auto missing = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(beside.status().message()), why...));
  };
  // Before anything inside is believed.
  const absl::StatusOr<std::shared_ptr<const ModelFile>> file = HashModelFile(in, versions.back());
  if (!file.ok()) return missing("; ", std::string(file.status().message()));
  const std::string place = absl::StrCat("version ", versions.back(), ": ", kModelFile);
  absl::StatusOr<std::optional<std::string>> inside = ReadExtraFile((*file)->descriptor(), kConfigFile);
  if (!inside.ok()) return missing("; ", place, ": ", std::string(inside.status().message()));
  if (!inside->has_value()) return missing(", and there is none inside ", versions.back(), "/", kModelFile);
  return ConfigText{**std::move(inside), absl::StrCat(place, ": ", kConfigFile)};
}

// Reads the model in `repository`, whose path is `path`. An error lists the faults one a line, without the model's name.
absl::StatusOr<RepositoryModel> ReadModel(const Descriptor& repository, const std::string& path, const std::string& name,
                                          const ModelManifest* manifest) {
  ASSIGN_OR_RETURN(const Descriptor folder, OpenIn(repository, name, O_DIRECTORY));
  RepositoryModel model;
  ASSIGN_OR_RETURN(const std::vector<std::int64_t> versions, VersionsIn(folder, model.warnings));
  const ModelFolder in{folder, name, manifest};
  ASSIGN_OR_RETURN(const ConfigText config, ReadConfig(in, versions));
  absl::StatusOr<LoadedConfig> loaded = LoadModelConfig(config.text, name);

  // A configuration at fault has no policy to go by, but what else is wrong is worth telling in the same breath.
  std::vector<std::string> faults;
  if (loaded.ok()) {
    for (const std::string& warning : loaded->warnings) model.warnings.push_back(absl::StrCat(config.place, ": ", warning));
  } else {
    for (const auto& fault : absl::StrSplit(loaded.status().message(), '\n'))
      faults.push_back(absl::StrCat(config.place, ": ", fault));
  }
  const absl::StatusOr<std::int64_t> version =
      NewestVersion(versions, loaded.ok() ? loaded->config.version_policy() : inference::ModelVersionPolicy());
  if (!version.ok()) faults.emplace_back(version.status().message());
  if (!faults.empty()) return absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));

  ASSIGN_OR_RETURN(model.file, HashModelFile(in, *version));
  model.name = name;
  model.version = *version;
  model.model_file = absl::StrCat(path, path.back() == '/' ? "" : "/", FileOf(name, *version));
  model.sha256 = model.file->sha256();
  model.spec = std::move(loaded->spec);
  model.config = std::move(loaded->config);
  return model;
}

absl::StatusOr<Descriptor> OpenRepository(const std::string& path) {
  const int number = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (number >= 0) return Descriptor(number);
  return absl::NotFoundError(absl::StrCat("--model-repository ", DoubleQuoted(path), " ", ErrorText(errno)));
}

void AppendFaults(const std::string& name, const absl::Status& status, std::vector<std::string>& faults) {
  for (const auto& line : absl::StrSplit(status.message(), '\n')) faults.push_back(absl::StrCat("model '", name, "': ", line));
}

// Why an entry of the repository is no model, or nothing where it is one.
std::string ReasonToLeaveOut(const Descriptor& repository, const std::string& name) {
  switch (KindOf(repository, name)) {
    case EntryKind::kLink: return "it is a symbolic link, which is not followed";
    case EntryKind::kOther: return "it is not a folder";
    case EntryKind::kFolder: break;
  }
  return IsModelName(name) ? "" : "a model's name is of 1 to 128 letters, digits, '_' or '-'";
}

// Nothing where there is none to go by.
absl::StatusOr<std::optional<ModelManifest>> ReadManifest(const std::string& file) {
  if (file.empty()) return std::optional<ModelManifest>();
  ASSIGN_OR_RETURN(ModelManifest manifest, ModelManifest::Read(file));
  return std::optional<ModelManifest>(std::move(manifest));
}

}  // namespace

absl::StatusOr<RepositoryContents> ReadRepository(const std::string& folder, const std::string& manifest_file) {
  ASSIGN_OR_RETURN(const std::optional<ModelManifest> manifest, ReadManifest(manifest_file));
  ASSIGN_OR_RETURN(const Descriptor repository, OpenRepository(folder));
  const absl::StatusOr<std::vector<std::string>> names = NamesIn(repository);
  if (!names.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("--model-repository ", DoubleQuoted(folder), " ", names.status().message()));
  }
  RepositoryContents contents;
  std::vector<std::string> faults;
  for (const std::string& name : *names) {
    if (const std::string reason = ReasonToLeaveOut(repository, name); !reason.empty()) {
      contents.warnings.push_back(absl::StrCat(DoubleQuoted(name), " in the model repository is left out: ", reason));
      continue;
    }
    absl::StatusOr<RepositoryModel> model = ReadModel(repository, folder, name, manifest ? &*manifest : nullptr);
    if (model.ok()) {
      contents.models.push_back(*std::move(model));
    } else {
      AppendFaults(name, model.status(), faults);
    }
  }
  if (!faults.empty()) return absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
  if (contents.models.empty()) {
    std::vector<std::string> lines = {absl::StrCat("--model-repository ", DoubleQuoted(folder),
                                                   " holds no model: a model is a folder with ", kConfigFile, " and 1/",
                                                   kModelFile)};
    lines.insert(lines.end(), contents.warnings.begin(), contents.warnings.end());
    return absl::FailedPreconditionError(absl::StrJoin(lines, "\n"));
  }
  return contents;
}

absl::StatusOr<std::vector<std::string>> ModelNamesIn(const std::string& folder) {
  ASSIGN_OR_RETURN(const Descriptor repository, OpenRepository(folder));
  ASSIGN_OR_RETURN(std::vector<std::string> names, NamesIn(repository));
  std::erase_if(names, [&](const std::string& name) { return !ReasonToLeaveOut(repository, name).empty(); });
  return names;
}

absl::StatusOr<RepositoryModel> ReadRepositoryModel(const std::string& folder, const std::string& name,
                                                    const std::string& manifest_file) {
  ASSIGN_OR_RETURN(const Descriptor repository, OpenRepository(folder));
  if (!IsModelName(name) || KindOf(repository, name) != EntryKind::kFolder) {
    return absl::NotFoundError(absl::StrCat("the repository holds no model ", DoubleQuoted(name)));
  }
  ASSIGN_OR_RETURN(const std::optional<ModelManifest> manifest, ReadManifest(manifest_file));
  absl::StatusOr<RepositoryModel> model = ReadModel(repository, folder, name, manifest ? &*manifest : nullptr);
  if (model.ok()) return model;
  std::vector<std::string> faults;
  AppendFaults(name, model.status(), faults);
  return absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
}

}  // namespace headroom
