// Finds the models in a repository: DIR/<model>/config.pbtxt and DIR/<model>/<version>/model.pt. Without the former, the
// config.pbtxt that the newest version's model.pt carries as a TorchScript extra file is used.
//
// DIR itself may be a symbolic link (a mounted volume often is one); nothing below it is followed, so that a repository holds what
// its folder holds and nothing else.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/model_config.pb.h"
#include "runtime/model_spec.h"
#include "server/model_file.h"

namespace headroom {

// One model, at the version that is to be served.
struct RepositoryModel {
  std::string name;
  std::int64_t version = 0;  // ≥ 1
  std::string model_file;    // DIR/<name>/<version>/model.pt
  std::string sha256;        // of model_file, as hexadecimal digits
  // The file that was hashed, held open: what is to be loaded, whatever lies at its name by then. Null: model_file by its name.
  std::shared_ptr<const ModelFile> file;
  ModelSpec spec;
  inference::ModelConfig config;
  std::vector<std::string> warnings;  // "config.pbtxt: optimization: is ignored: …"
};

struct RepositoryContents {
  std::vector<RepositoryModel> models;  // by name; at least one
  std::vector<std::string> warnings;    // of entries that are no models, and are left out
};

// Reads the whole repository.
//
// NOT_FOUND where `folder` is missing, FAILED_PRECONDITION where it holds no model; both name it and --model-repository.
// INVALID_ARGUMENT where models are at fault: all faults of all models, one a line, "model 'P': config.pbtxt: max_batch_size: …".
// Entries whose name is no model's, plain files and symbolic links are left out with a warning.
//
// With a `manifest` (a file's name; see ModelManifest), read anew each time, every model.pt and every config.pbtxt that is used
// must be as listed there; else it is at fault.
absl::StatusOr<RepositoryContents> ReadRepository(const std::string& folder, const std::string& manifest = "");

// The names of the folders in the repository that can be models, sorted.
absl::StatusOr<std::vector<std::string>> ModelNamesIn(const std::string& folder);

// Reads one model anew. NOT_FOUND where the repository has no such folder, or `name` cannot be one's; else as ReadRepository.
absl::StatusOr<RepositoryModel> ReadRepositoryModel(const std::string& folder, const std::string& name,
                                                    const std::string& manifest = "");

}  // namespace headroom
