#include "bench/figures/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace headroom {
namespace {

constexpr std::size_t kLeastRounds = 3;
constexpr double kOutside = 0.025;  // on each side

}  // namespace

Interval Bootstrap(std::size_t rounds, const RoundStatistic& statistic, Random& random, int resamples) {
  std::vector<std::size_t> chosen(rounds);
  std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  Interval interval;
  interval.value = statistic(chosen);
  interval.low = interval.high = std::numeric_limits<double>::quiet_NaN();
  if (rounds < kLeastRounds) return interval;
  std::vector<double> values;
  for (int i = 0; i < resamples; ++i) {
    for (std::size_t& round : chosen) {
      round = static_cast<std::size_t>(UniformInteger(random, 0, static_cast<std::int64_t>(rounds) - 1));
    }
    const double value = statistic(chosen);
    if (std::isfinite(value)) values.push_back(value);
  }
  if (values.empty()) return interval;
  std::sort(values.begin(), values.end());
  const auto at = [&values](double share) {
    return values[static_cast<std::size_t>(std::llround(share * static_cast<double>(values.size() - 1)))];
  };
  interval.low = at(kOutside);
  interval.high = at(1 - kOutside);
  return interval;
}

}  // namespace headroom
