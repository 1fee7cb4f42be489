// How long the rows of some traffic are. The same names and shares as in the other tools of bench/.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/traffic/random.h"

namespace headroom {

// Lengths as quantile functions, a named column each: "quantile,NAME,…", then a line for each quantile, from 0 to 1.
class QuantileTable {
 public:
  // INVALID_ARGUMENT, naming the line, for text that is no such table.
  static absl::StatusOr<QuantileTable> Parse(absl::string_view text);

  bool Has(const std::string& name) const { return columns_.contains(name); }
  // The length below which `share` (0 to 1) of the column's lengths are, between two quantiles on their line; at least 1.
  // `name` must be there.
  std::int64_t At(const std::string& name, double share) const;

 private:
  std::vector<double> quantiles_;  // ascending, at least two
  std::map<std::string, std::vector<double>> columns_;
};

// Draws a row's length in tokens; at least 1.
using LengthDraw = std::function<std::int64_t(Random&)>;

// `mix` is one of
//   search     30 % msmarco_q, 20 % sst2, 10 % squad_q, 20 % squad_p, 20 % squad_pair: columns of the table in `quantiles`
//   incident   80 % 8 to 127, 15 % 128 to 511, 5 % 513 to 3000, evenly
//   LOW-HIGH   evenly from LOW to HIGH
//   N          always N
// A length over `cut` is drawn as `cut`; 0 cuts nothing. INVALID_ARGUMENT for another name, or a table without what it needs.
absl::StatusOr<LengthDraw> MakeLengthDraw(const std::string& mix, absl::string_view quantiles, std::int64_t cut);

// The lengths of `count` rows. The same for the same seed, so that two programs run the same rows.
std::vector<std::int64_t> DrawLengths(const LengthDraw& draw, std::size_t count, std::uint64_t seed);

}  // namespace headroom
