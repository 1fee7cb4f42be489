// What to do with rows whose run has failed. Pure.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace headroom {

enum class NextTry {
  kHalves,     // run the two halves apart
  kAlone,      // run the same rows again with the device to themselves
  kWaitAgain,  // put the row back to wait: others have taken the memory that it needs
  kGiveUp,     // answer the rows with the error
};

struct OutOfMemoryCase {
  std::int64_t rows = 1;
  bool was_alone = false;    // no other run was on the device
  std::int64_t retries = 0;  // runs of the row that have failed
  Bytes needs{0};            // of the row, after what this failure taught
  Bytes budget{0};           // what batches may hold together now
  Bytes idle_budget{0};      // and on the idle device
};

// Halves down to one row, which is run once more with the device to itself, from an empty cache. Where even that fails although the
// row would fit the idle device, somebody else holds the memory: the row waits for it, a bounded number of times.
NextTry AfterOutOfMemory(const OutOfMemoryCase& failed);

// Halves until the guilty row is alone: of n rows with one guilty, at most 2n are run again.
NextTry AfterModelError(std::int64_t rows);

// A row that has failed so often is given up, whatever the memory looks like.
inline constexpr std::int64_t kMostRetries = 24;

}  // namespace headroom
