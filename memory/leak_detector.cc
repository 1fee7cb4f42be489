#include "memory/leak_detector.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace headroom {
namespace {

using Values = std::vector<double>;

constexpr double kCertain = 0.999;
constexpr std::size_t kBlocks = 10;
// Of the growth, what must be left without the three largest of the nine rises between blocks: a leak leaves 2/3, three steps
// nothing.
constexpr double kSpread = 0.4;
// What was leaked when a sample was taken is in all later ones too: the least of a sample and the next few is the better reading.
constexpr std::size_t kReading = 4;
// Of the first half's growth, what the last half's must be: a leak has all of it, what settles within 0.7 windows less than this.
constexpr double kLasting = 0.5;
constexpr double kAboveNoise = 3;
constexpr double kSigmasOfMedian = 1.4826;  // of a normal distribution: its standard deviation over the median deviation

double Median(Values values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The least of each value and the kReading - 1 after it; so many fewer values.
Values Readings(const Values& values) {
  Values least(values.size() - (kReading - 1));
  for (std::size_t i = 0; i < least.size(); ++i) {
    const auto from = values.begin() + static_cast<std::ptrdiff_t>(i);
    least[i] = *std::min_element(from, from + kReading);
  }
  return least;
}

// Theil and Sen's: the median of the slopes of all pairs. Pairs with the same x say nothing.
double MedianSlope(const Values& x, const Values& y) {
  Values slopes;
  slopes.reserve(x.size() * (x.size() - 1) / 2);
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = i + 1; j < x.size(); ++j) {
      if (x[j] > x[i]) slopes.push_back((y[j] - y[i]) / (x[j] - x[i]));
    }
  }
  return Median(std::move(slopes));
}

Values Without(const Values& y, const Values& x, double slope) {
  Values rest(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) rest[i] = y[i] - slope * (x[i] - x.front());
  return rest;
}

double NoiseOf(const Values& residuals) {
  const double middle = Median(residuals);
  Values deviations(residuals.size());
  std::transform(residuals.begin(), residuals.end(), deviations.begin(), [&](double value) { return std::abs(value - middle); });
  return kSigmasOfMedian * Median(std::move(deviations));
}

// Ranks from 0, equal values sharing the mean of theirs, less the mean of all.
Values CentredRanks(const Values& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  Values ranks(values.size());
  const double mean = (static_cast<double>(values.size()) - 1) / 2;
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first;
    while (last + 1 < order.size() && values[order[last + 1]] == values[order[first]]) ++last;
    for (std::size_t i = first; i <= last; ++i) ranks[order[i]] = static_cast<double>(first + last) / 2 - mean;
    first = last + 1;
  }
  return ranks;
}

// By how much autocorrelation widens the variance of Mann and Kendall's S: Hamed and Rao (1998), from the ranks of what is left
// without the trend, over lags up to a quarter, as long as they are positive: what comes after is noise. Never below 1.
double VarianceInflation(const Values& residuals) {
  const Values ranks = CentredRanks(residuals);
  const double squares = std::inner_product(ranks.begin(), ranks.end(), ranks.begin(), 0.0);
  if (squares == 0) return 1;
  const auto n = static_cast<double>(ranks.size());
  double sum = 0;
  for (std::size_t lag = 1; lag <= ranks.size() / 4; ++lag) {
    const auto end = ranks.end() - static_cast<std::ptrdiff_t>(lag);
    const double correlation =
        std::inner_product(ranks.begin(), end, ranks.begin() + static_cast<std::ptrdiff_t>(lag), 0.0) / squares;
    const auto k = static_cast<double>(lag);
    if (correlation <= 0) break;
    sum += (n - k) * (n - k - 1) * (n - k - 2) * correlation;
  }
  return std::max(1.0, 1 + 2 * sum / (n * (n - 1) * (n - 2)));
}

double VarianceOfKendall(Values values) {
  std::sort(values.begin(), values.end());
  const auto term = [](double n) { return n * (n - 1) * (2 * n + 5); };
  double sum = term(static_cast<double>(values.size()));
  for (auto first = values.begin(); first != values.end();) {
    const auto last = std::upper_bound(first, values.end(), *first);
    sum -= term(static_cast<double>(last - first));
    first = last;
  }
  return sum / 18;
}

double ConfidenceOfRise(const Values& values, const Values& residuals) {
  double s = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t j = i + 1; j < values.size(); ++j) s += values[j] > values[i] ? 1 : values[j] < values[i] ? -1 : 0;
  }
  const double variance = VarianceOfKendall(values) * VarianceInflation(residuals);
  if (s <= 1 || variance <= 0) return 0;
  return std::erf((s - 1) / std::sqrt(variance) / std::sqrt(2.0));
}

// The middle of each tenth.
std::array<double, kBlocks> BlocksOf(const Values& values) {
  std::array<double, kBlocks> blocks{};
  for (std::size_t i = 0; i < kBlocks; ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * values.size() / kBlocks);
    const auto end = values.begin() + static_cast<std::ptrdiff_t>((i + 1) * values.size() / kBlocks);
    blocks[i] = Median(Values(begin, end));
  }
  return blocks;
}

// Whether the growth goes on throughout: not a few steps, not a curve that flattens.
bool GrowsThroughout(const std::array<double, kBlocks>& blocks) {
  std::array<double, kBlocks - 1> rises{};
  for (std::size_t i = 0; i < rises.size(); ++i) rises[i] = blocks[i + 1] - blocks[i];
  const auto half = static_cast<std::ptrdiff_t>(rises.size() / 2);
  const double first = std::accumulate(rises.begin(), rises.begin() + half, 0.0);
  const double last = std::accumulate(rises.end() - half, rises.end(), 0.0);
  if (last < kLasting * first) return false;
  std::sort(rises.begin(), rises.end());
  const double growth = blocks.back() - blocks.front();
  return growth - std::accumulate(rises.end() - 3, rises.end(), 0.0) >= kSpread * growth;
}

}  // namespace

void LeakDetector::Add(TimePoint time, std::int64_t calls, Bytes at_rest) {
  Point point{time, calls, at_rest};
  if (!first_) first_ = point;
  warm_ = warm_ || calls - first_->calls >= options_.warm_up_calls || time - first_->time >= options_.warm_up_time;
  if (!warm_) return;
  for (Level& level : levels_) {
    if (level.points.size() == kPoints) level.points.erase(level.points.begin());
    level.points.push_back(point);
    level.estimate = JudgeLevel(level.points);
    if (!level.single) {
      level.single = point;
      return;
    }
    // The lesser of two stands for both, in its own place, so that slopes stay true.
    if (level.single->bytes < point.bytes) point = *level.single;
    level.single.reset();
  }
}

std::optional<LeakEstimate> LeakDetector::Estimate() const {
  std::optional<LeakEstimate> longest;
  for (const Level& level : levels_) {
    if (!level.estimate) continue;
    if (level.estimate->leaking) return level.estimate;
    longest = level.estimate;
  }
  return longest;
}

std::optional<LeakEstimate> LeakDetector::JudgeLevel(std::span<const Point> points) const {
  const std::optional<LeakEstimate> whole = Judge(points);
  if (!whole || whole->leaking) return whole;
  const std::optional<LeakEstimate> late = Judge(points.last(points.size() * 3 / 4));
  return late && late->leaking ? late : whole;
}

std::optional<LeakEstimate> LeakDetector::Judge(std::span<const Point> points) const {
  if (points.size() < kFewestPoints) return std::nullopt;
  LeakEstimate estimate;
  estimate.calls = points.back().calls - points.front().calls;
  estimate.span = points.back().time - points.front().time;
  if (estimate.calls < options_.least_calls && estimate.span < options_.least_time) return std::nullopt;

  Values calls(points.size());
  Values seconds(points.size());
  Values bytes(points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    // Of the differences, so that no precision goes.
    calls[i] = static_cast<double>(points[i].calls - points.front().calls);
    seconds[i] = Seconds(points[i].time - points.front().time);
    bytes[i] = static_cast<double>((points[i].bytes - points.front().bytes).count);
  }
  bytes = Readings(bytes);
  calls.resize(bytes.size());
  seconds.resize(bytes.size());
  estimate.bytes_per_call = MedianSlope(calls, bytes);
  estimate.bytes_per_second = MedianSlope(seconds, bytes);
  const bool by_calls = estimate.calls >= options_.least_calls;
  const Values residuals =
      by_calls ? Without(bytes, calls, estimate.bytes_per_call) : Without(bytes, seconds, estimate.bytes_per_second);
  estimate.confidence = ConfidenceOfRise(bytes, residuals);

  const std::array<double, kBlocks> blocks = BlocksOf(bytes);
  const double least = std::max(static_cast<double>(options_.least_growth.count), kAboveNoise * NoiseOf(residuals));
  estimate.leaking = estimate.confidence >= kCertain && blocks.back() - blocks.front() >= least && GrowsThroughout(blocks);
  return estimate;
}

}  // namespace headroom
