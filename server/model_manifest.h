// The list of what may be loaded: SHA-256 digests of files of the repository, in the format of sha256sum(1).
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <string>

namespace headroom {

// Constant after construction.
class ModelManifest {
 public:
  // Reads "<64 hexadecimal digits>  <path>" (or " *<path>"), a line a file; paths are relative to the repository, with or without
  // "./". INVALID_ARGUMENT naming the line that is none, or a file that is listed twice with different digests; an empty list is
  // one by which nothing may be loaded.
  static absl::StatusOr<ModelManifest> Parse(const std::string& text);
  // The same of a file. An error names the option --model-manifest and the file.
  static absl::StatusOr<ModelManifest> Read(const std::string& file);

  // Whether the file at `path` in the repository may be used with this digest. INVALID_ARGUMENT, saying why not.
  absl::Status Check(const std::string& path, const std::string& sha256) const;

 private:
  std::map<std::string, std::string> digests_;  // by path
};

}  // namespace headroom
