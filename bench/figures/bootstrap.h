// How sure a figure is that comes from several rounds of one run.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "bench/traffic/random.h"

namespace headroom {

// A figure of all rounds, and where 95 in 100 figures lie of as many rounds drawn from them, with repeats. Rounds are drawn whole:
// what disturbs a machine lasts longer than a call, so that calls are no independent draws. `low` and `high` are NaN where there
// are less than three rounds, which say nothing about it.
struct Interval {
  double value = 0;
  double low = 0;
  double high = 0;
};

// A figure of the rounds of these numbers, which may repeat. One that is not finite is left out of the interval.
using RoundStatistic = std::function<double(std::span<const std::size_t> rounds)>;

Interval Bootstrap(std::size_t rounds, const RoundStatistic& statistic, Random& random, int resamples = 1000);

}  // namespace headroom
