#include "server/ready_file.h"

#include <absl/strings/str_cat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace headroom {
namespace {

std::string PartOf(const std::string& path) { return path + ".part"; }

absl::Status Unwritable(const std::string& path, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat("--ready-file ", path, " cannot be written", why));
}

absl::Status WritePart(const std::string& path, const std::string& text) {
  std::ofstream out(PartOf(path), std::ios::trunc);
  out << text;
  return out.flush() ? absl::OkStatus() : Unwritable(path, "");
}

void RemovePart(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove(PartOf(path), ignored);
}

}  // namespace

absl::Status WriteReadyFile(const std::string& path, const Address& grpc, const Address& http,
                            const std::optional<Address>& management) {
  nlohmann::ordered_json addresses = {{"grpc", ToString(grpc)}, {"http", ToString(http)}};
  if (management) addresses["management"] = ToString(*management);
  if (absl::Status written = WritePart(path, addresses.dump() + "\n"); !written.ok()) return written;
  std::error_code error;
  std::filesystem::rename(PartOf(path), path, error);
  if (!error) return absl::OkStatus();
  RemovePart(path);
  return Unwritable(path, absl::StrCat(": ", error.message()));
}

absl::Status ClearReadyFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return Unwritable(path, ": it is a folder");
  if (absl::Status written = WritePart(path, ""); !written.ok()) return written;
  RemovePart(path);
  std::filesystem::remove(path, error);
  return error ? Unwritable(path, absl::StrCat(": ", error.message())) : absl::OkStatus();
}

}  // namespace headroom
