// Rows to simulate: their lengths and when they come, drawn from a seed.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/traffic/random.h"

namespace headroom {

struct SimulatedRow {
  Duration arrives{0};  // from the start
  std::int64_t length = 0;
};

// Lengths as a random variable: a mix of quantile functions, each by its weight. Lengths between two quantiles are equally likely.
class LengthDistribution {
 public:
  struct Part {
    double weight = 1;
    std::vector<double> lengths;  // at equal steps of the quantile, from 0 to 1; at least one
  };
  // `cut` > 0: longer ones are cut to it.
  LengthDistribution(std::vector<Part> parts, std::int64_t cut);

  std::int64_t Draw(Random& random) const;

  // 80 % of 8 to 127, 15 % of 128 to 511, the rest of 513 to 3000: the launch day.
  static LengthDistribution Incident(std::int64_t cut);
  // Columns `quantile,NAME,…` at equal steps from 0 to 1, or `length,count`, or `length[,…]` with a line a row. `mix`: the weights
  // of named columns, all equally where it is empty. INVALID_ARGUMENT naming what is wrong.
  static absl::StatusOr<LengthDistribution> FromCsv(const std::string& text, const std::map<std::string, double>& mix,
                                                    std::int64_t cut);

 private:
  std::vector<Part> parts_;
  std::vector<double> up_to_;  // for each part, the share of it and of those before it
  std::int64_t cut_;
};

// `rows` rows that come by a Poisson process of one row a second, in the order of their arrival. AtRate makes it another rate, so
// that rates are compared on the same traffic.
std::vector<SimulatedRow> PoissonRows(const LengthDistribution& lengths, std::size_t rows, std::uint64_t seed);
std::vector<SimulatedRow> AtRate(std::vector<SimulatedRow> rows, double rows_per_second);

// A trace, columns `arrival_seconds,length` in any order among others; INVALID_ARGUMENT naming the line that is wrong.
absl::StatusOr<std::vector<SimulatedRow>> TraceRows(const std::string& text, double speed, std::int64_t cut);

}  // namespace headroom
