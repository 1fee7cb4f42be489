// Tells of rows beyond the last bucket: counts each, and logs them, one line in a while.
#pragma once

#include <cstdint>
#include <string>

#include "base/rate_limit.h"
#include "batching/batch_observer.h"

namespace headroom {

// What became of a request's rows beyond the last bucket.
struct TailRows {
  std::int64_t truncated = 0;
  std::int64_t solo = 0;
  std::int64_t refused = 0;
  std::int64_t longest = 0;  // of these rows, as the client sent it

  std::int64_t total() const { return truncated + solo + refused; }
};

// Thread-safe.
class TailReport {
 public:
  // What is passed outlives this object.
  TailReport(BatchObserver& observer, Clock& clock) : observer_(observer), clock_(clock) {}

  void Tell(const std::string& model, const TailRows& rows);

 private:
  BatchObserver& observer_;
  Clock& clock_;
  RateLimit log_{std::chrono::seconds(10)};
};

}  // namespace headroom
