// Callers that give their calls up as soon as they have made them. Each costs the server a call that nobody waits for, and HTTP/2
// does not count it among those that are open (CVE-2023-44487); gRPC 1.51 has no limit on it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "base/sync.h"

namespace headroom {

// Thread-safe. Connections are known by their peer, as gRPC tells it.
class AbandonedCalls {
 public:
  // A connection may give up so many calls a second, and a burst of ten seconds' worth. 0: as many as it likes.
  explicit AbandonedCalls(int a_second) : a_second_(a_second) {}

  // Notes one. True where the connection has given up too many, and is to be closed.
  bool Note(const std::string& peer, TimePoint now) EXCLUDES(mutex_);

 private:
  struct Bucket {
    double calls = 0;
    TimePoint at;
  };
  void ForgetQuietOnes(TimePoint now) REQUIRES(mutex_);

  const int a_second_;
  Mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_ GUARDED_BY(mutex_);
};

}  // namespace headroom
