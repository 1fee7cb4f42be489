// What a mix of lengths asks of a model: which share of the rows goes where, in which batches, and what padding costs. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "batching/bucket_ladder.h"
#include "runtime/device.h"
#include "server/traffic_file.h"

namespace headroom {

// What becomes of the rows of a range of lengths.
enum class Treatment {
  kBatched,    // in batches of their bucket
  kTruncated,  // cut to the last bucket, then the same
  kAlone,      // one row a batch, unpadded
  kRefused,    // too long
};

// "batched", "truncated", "alone", "refused".
const char* NameOf(Treatment treatment);

struct WindowBatch {
  BatchShape shape;
  std::int64_t useful_tokens = 0;
};

// The rows of one bucket or tier, or those beyond.
struct TrafficClass {
  std::int64_t from = 0;   // lengths from this
  std::int64_t up_to = 0;  // to this; 0: no end
  Treatment treatment = Treatment::kBatched;
  std::int64_t bucket = 0;  // where the rows run; 0: nowhere
  double share = 0;         // of all rows
  std::int64_t largest_batch = 0;
  // How rows of this class are cut into batches while a window of all the traffic waits: sorted by length, as many rows a batch as
  // fit. Empty where there are none, or not one fits.
  std::vector<WindowBatch> batches;
};

struct TrafficMix {
  std::vector<TrafficClass> classes;  // ascending in length, one for each bucket and tier, then those beyond
  double refused_share = 0;           // longer than any limit
  double unfit_share = 0;             // of a bucket of which not one row fits the memory
  // Tokens of true lengths, as they are run, by tokens computed; 0 where nothing runs.
  double useful_share = 0;
};

// Rows that wait at once, from which batches are formed: as many as a loaded server sees.
inline constexpr std::int64_t kWindowRows = 256;

// `largest` tells the most rows of a bucket (or tier) that fit the memory at its full length.
//
// Each class has its own part of the window, at least a row: its lengths are those in the middle of equal shares of the class' own
// rows, so that the answer is the same every time. A class of a share s then counts with s, however few its rows are.
TrafficMix MixOf(const TrafficLengths& traffic, const std::vector<Tier>& tiers, const std::vector<std::int64_t>& buckets,
                 const BucketLadder& ladder, const std::function<std::int64_t(std::int64_t bucket)>& largest);

// Rows a second when each batch of the windows takes `seconds` of it and classes come in their shares; of rows that are served
// only. Nothing where no row is served.
double RowsPerSecond(const TrafficMix& mix, const std::function<double(BatchShape)>& seconds);

}  // namespace headroom
