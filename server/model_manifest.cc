#include "server/model_manifest.h"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/status_macros.h"

namespace headroom {
namespace {

constexpr std::size_t kDigits = 64;
constexpr std::size_t kMostBytes = 16 << 20;

bool IsDigest(std::string_view text) {
  return text.size() == kDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); });
}

}  // namespace

absl::StatusOr<ModelManifest> ModelManifest::Parse(const std::string& text) {
  ModelManifest manifest;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    if (line.empty()) continue;
    // Two characters between: a blank, and a blank or, for a file that was read as binary, an asterisk.
    const bool whole = line.size() > kDigits + 2 && IsDigest(line.substr(0, kDigits)) && line[kDigits] == ' ' &&
                       (line[kDigits + 1] == ' ' || line[kDigits + 1] == '*');
    if (!whole) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", i + 1, " is not as sha256sum prints it: 64 hexadecimal digits and a file"));
    }
    std::string path(line.substr(kDigits + 2));
    if (path.starts_with("./")) path.erase(0, 2);
    const std::string digest = absl::AsciiStrToLower(std::string(line.substr(0, kDigits)));
    const auto [listed, is_new] = manifest.digests_.try_emplace(path, digest);
    if (!is_new && listed->second != digest) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", i + 1, ": \"", absl::CEscape(path), "\" is listed already, with another digest"));
    }
  }
  return manifest;
}

absl::StatusOr<ModelManifest> ModelManifest::Read(const std::string& file) {
  const auto named = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("--model-manifest \"", absl::CEscape(file), "\" ", why));
  };
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf())) return named("cannot be read, or is empty");
  if (text.str().size() > kMostBytes) return named("is too long");
  absl::StatusOr<ModelManifest> manifest = Parse(text.str());
  if (!manifest.ok()) return named(std::string(manifest.status().message()));
  return manifest;
}

absl::Status ModelManifest::Check(const std::string& path, const std::string& sha256) const {
  const auto listed = digests_.find(path);
  if (listed == digests_.end()) return absl::InvalidArgumentError(absl::StrCat(path, " is not listed in the --model-manifest"));
  if (listed->second == sha256) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, " is not the file that the --model-manifest lists: its SHA-256 begins with ",
                                                 sha256.substr(0, 12), ", the listed one with ", listed->second.substr(0, 12)));
}

}  // namespace headroom
