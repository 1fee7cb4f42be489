// Files that an operator replaces while the server runs: certificates, tokens.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace headroom {

// The whole of a file of at most `most` bytes. An error names the path, and is for the operator alone.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, std::size_t most);

// Tells when one of several files has changed, by a look at most once a second: it is asked on the way of calls. Links are
// followed, as Kubernetes replaces a secret by a link. Not thread-safe.
class WatchedFiles {
 public:
  // The files as they are now are the first state.
  WatchedFiles(std::vector<std::string> paths, Clock& clock);

  // Whether any of them is another one than when this last told so, or has changed. Whoever then finds the contents at fault calls
  // LookAgain, lest a second half of a change that came within one tick of the file system's clock is missed.
  bool Changed();
  void LookAgain() { seen_.clear(); }

 private:
  struct Stamp {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::int64_t size = -1;  // -1: it cannot be looked at
    std::int64_t modified = 0;
    std::int64_t changed = 0;

    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  std::vector<Stamp> Look() const;

  const std::vector<std::string> paths_;
  Clock& clock_;
  std::vector<Stamp> seen_;
  TimePoint next_look_;
};

}  // namespace headroom
