// The tokens of --token-file, and who needs one.
#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/rate_limit.h"
#include "base/sync.h"
#include "server/watched_files.h"

namespace headroom {

// Thread-safe.
//
// The file: a token a line, of 16 to 4096 printable characters without blanks; lines that are empty or begin with '#' are left out.
// Several tokens are valid at once, so that one can be replaced by another without a moment in which callers have none. A file that
// has become unreadable, empty or wrong leaves the tokens that were, and is logged: half a write must not lock everybody out. To do
// that, write a token that nobody has.
class BearerTokens {
 public:
  // `clock` outlives the object. FAILED_PRECONDITION naming the file and its fault.
  static absl::StatusOr<std::unique_ptr<BearerTokens>> Open(const std::string& path, Clock& clock);

  // Whether the value of an `authorization` entry, "Bearer TOKEN", carries one of the tokens. How long it takes tells nothing of
  // them: digests of equal size are compared, all of them.
  bool Accepts(std::string_view authorization) EXCLUDES(mutex_);

 private:
  using Digest = std::array<unsigned char, 32>;
  BearerTokens(std::string path, Clock& clock, WatchedFiles watched, std::vector<Digest> digests);
  static absl::StatusOr<std::vector<Digest>> Read(const std::string& path);
  void ReadAnew() REQUIRES(mutex_);

  const std::string path_;
  Clock& clock_;
  RateLimit told_{std::chrono::minutes(1)};
  Mutex mutex_;
  WatchedFiles watched_ GUARDED_BY(mutex_);
  std::vector<Digest> digests_ GUARDED_BY(mutex_);
};

// Whether a method ("/package.Service/Method") answers without a token: what tells a machine that the server lives and is ready,
// and nothing else.
bool IsFreeMethod(std::string_view path);

}  // namespace headroom
