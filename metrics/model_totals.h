// What has been counted of a model, as statistics tell it: no more than the metrics page knows, by version.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "base/clock.h"

namespace headroom {

struct CountAndTime {
  std::int64_t count = 0;
  Duration time{0};
};

// Why requests were not answered OK, in Triton's words: REJECTED (refused or expired for want of room or time), CANCELED, BACKEND
// (the model failed), OTHER (the request was wrong).
enum class FailureReason { kRejected, kCanceled, kBackend, kOther };
inline constexpr std::size_t kFailureReasons = 4;
const char* NameOf(FailureReason reason);

struct ModelTotals {
  // Of batches that had so many rows.
  struct Batches {
    std::int64_t count = 0;
    Duration compute_input{0};
    Duration compute_infer{0};
    Duration compute_output{0};
  };

  std::int64_t rows = 0;     // really run
  std::int64_t batches = 0;  // run to the end
  CountAndTime succeeded;    // requests, from arrival to answer
  CountAndTime failed;       // those that were answered anything else
  std::array<std::int64_t, kFailureReasons> failures{};
  // Sums over the requests that succeeded, of each the most that a row of it took.
  Duration queue{0};
  Duration compute_input{0};
  Duration compute_infer{0};
  Duration compute_output{0};
  TimePoint last_answer{};                  // of those that succeeded; the epoch where there is none
  std::map<std::int64_t, Batches> by_rows;  // a batch's rows → such batches

  // Adds or takes away what was counted at another time; the last answer stays the later one.
  ModelTotals& operator+=(const ModelTotals& other);
  ModelTotals& operator-=(const ModelTotals& earlier);
};

}  // namespace headroom
