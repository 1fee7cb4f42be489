// Reads the lengths of a traffic from a CSV file.
//
// The first line names the columns, and says by that which of three forms the file has:
//   length [,arrival_seconds]   a trace: a row for each
//   length,count                a histogram
//   quantile,NAME[,NAME...]     quantile functions, one or more, from 0 to 1: lengths between two quantiles are equally likely
// Other columns of a trace or a histogram are passed over. There are no quotes; blank lines count for nothing.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace headroom {

// How often each length occurs.
struct TrafficLengths {
  std::string form;                        // "trace", "histogram", "quantiles"
  std::map<std::int64_t, double> weights;  // by length, ≥ 1; each above 0
  double total = 0;                        // of the weights: the rows of a trace or histogram, 1 of quantiles
  std::vector<std::string> columns;        // of quantiles: the distributions that were mixed
};

// The weights of a mix of quantile columns, by name.
using ColumnWeights = std::map<std::string, double>;

// Reads "msmarco_q=30,sst2=20". INVALID_ARGUMENT where a part is not a name and a number above 0, or a name comes twice.
absl::StatusOr<ColumnWeights> ParseColumnWeights(const std::string& text);

struct TrafficLimits {
  Bytes file = MiB(64);             // a trace of a million rows has some 16 MiB
  std::int64_t rows = 4'000'000;    // lines of a file
  std::int64_t length = 1'048'576;  // the longest bucket that a model may have
  std::int64_t quantile_columns = 64;
  std::size_t faults = 20;  // told of one file, the rest are counted
};

// Reads the text of a file; `name` is for faults. `mix` says how the columns of quantiles are mixed: equally where it is empty.
// INVALID_ARGUMENT with one line for each fault, "traffic.csv:17: length must be …".
absl::StatusOr<TrafficLengths> ParseTraffic(const std::string& name, const std::string& text, const ColumnWeights& mix,
                                            const TrafficLimits& limits = {});

// The same of a file. NOT_FOUND where it cannot be opened, INVALID_ARGUMENT where it is larger than may be.
absl::StatusOr<TrafficLengths> ReadTraffic(const std::string& path, const ColumnWeights& mix, const TrafficLimits& limits = {});

// The length that the share `quantile` of the rows does not exceed: the least such.
std::int64_t LengthAt(const TrafficLengths& traffic, double quantile);

}  // namespace headroom
