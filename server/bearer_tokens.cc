#include "server/bearer_tokens.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace headroom {
namespace {

constexpr std::size_t kShortest = 16;
constexpr std::size_t kLongest = 4096;
constexpr std::size_t kMost = 64;
constexpr std::size_t kLargestFile = 512 << 10;
constexpr std::string_view kScheme = "bearer ";

}  // namespace

bool IsFreeMethod(std::string_view path) {
  constexpr std::array<std::string_view, 4> kFree = {"/inference.GRPCInferenceService/ServerLive",
                                                     "/inference.GRPCInferenceService/ServerReady", "/grpc.health.v1.Health/Check",
                                                     "/grpc.health.v1.Health/Watch"};
  return std::find(kFree.begin(), kFree.end(), path) != kFree.end();
}

BearerTokens::BearerTokens(std::string path, Clock& clock, WatchedFiles watched, std::vector<Digest> digests)
    : path_(std::move(path)), clock_(clock), watched_(std::move(watched)), digests_(std::move(digests)) {}

absl::StatusOr<std::unique_ptr<BearerTokens>> BearerTokens::Open(const std::string& path, Clock& clock) {
  WatchedFiles watched({path}, clock);  // looked at before it is read: a change in between is seen
  ASSIGN_OR_RETURN(std::vector<Digest> digests, Read(path));
  return std::unique_ptr<BearerTokens>(new BearerTokens(path, clock, std::move(watched), std::move(digests)));
}

absl::StatusOr<std::vector<BearerTokens::Digest>> BearerTokens::Read(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadSmallFile(path, kLargestFile));
  const auto fault = [&](const auto&... why) { return absl::FailedPreconditionError(absl::StrCat(path, " ", why...)); };
  std::vector<Digest> digests;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::size_t number = 0; number < lines.size(); ++number) {
    const absl::string_view line = absl::StripAsciiWhitespace(lines[number]);
    if (line.empty() || line.front() == '#') continue;
    const bool printable =
        std::all_of(line.begin(), line.end(), [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
    if (line.size() < kShortest || line.size() > kLongest || !printable) {
      // The line itself is a secret.
      return fault("line ", number + 1, " is no token: ", kShortest, " to ", kLongest, " printable characters without blanks");
    }
    SHA256(reinterpret_cast<const unsigned char*>(line.data()), line.size(), digests.emplace_back().data());
  }
  OPENSSL_cleanse(text.data(), text.size());
  if (digests.empty()) return fault("holds no token");
  if (digests.size() > kMost) return fault("holds more than ", kMost, " tokens");
  return digests;
}

bool BearerTokens::Accepts(std::string_view authorization) {
  if (authorization.size() <= kScheme.size() || authorization.size() > kScheme.size() + kLongest) return false;
  const auto same = [](char wanted, char given) { return absl::ascii_tolower(static_cast<unsigned char>(given)) == wanted; };
  if (!std::equal(kScheme.begin(), kScheme.end(), authorization.begin(), same)) return false;
  const std::string_view token = authorization.substr(kScheme.size());
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  MutexLock lock(mutex_);
  if (watched_.Changed()) ReadAnew();
  int found = 0;
  for (const Digest& each : digests_) found |= static_cast<int>(CRYPTO_memcmp(each.data(), digest.data(), digest.size()) == 0);
  return found != 0;
}

void BearerTokens::ReadAnew() {
  absl::StatusOr<std::vector<Digest>> digests = Read(path_);
  if (digests.ok()) {
    digests_ = *std::move(digests);
    Log(LogLevel::kInfo, "tokens were read anew", {{"tokens", digests_.size()}});
    return;
  }
  watched_.LookAgain();
  if (!told_.Pass(clock_.Now())) return;
  Log(LogLevel::kWarning, "tokens could not be read anew: those before stay",
      {{"reason", std::string(digests.status().message())}});
}

}  // namespace headroom
