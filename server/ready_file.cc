#include "server/ready_file.h"

#include <absl/strings/str_cat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace headroom {
namespace {

std::string PartOf(const std::string& path) { return path + ".part"; }

absl::Status WritePart(const std::string& path, const std::string& text) {
  std::ofstream out(PartOf(path), std::ios::trunc);
  out << text;
  if (!out.flush()) return absl::FailedPreconditionError(absl::StrCat("--ready-file ", path, " cannot be written"));
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteReadyFile(const std::string& path, const Address& grpc, const Address& http) {
  const nlohmann::ordered_json addresses = {{"grpc", ToString(grpc)}, {"http", ToString(http)}};
  if (absl::Status written = WritePart(path, addresses.dump() + "\n"); !written.ok()) return written;
  std::error_code error;
  std::filesystem::rename(PartOf(path), path, error);
  if (error) return absl::FailedPreconditionError(absl::StrCat("--ready-file ", path, " cannot be written: ", error.message()));
  return absl::OkStatus();
}

absl::Status CheckReadyFile(const std::string& path) {
  if (absl::Status written = WritePart(path, ""); !written.ok()) return written;
  std::error_code ignored;
  std::filesystem::remove(PartOf(path), ignored);
  return absl::OkStatus();
}

}  // namespace headroom
