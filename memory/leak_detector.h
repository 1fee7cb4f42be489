// Tells memory that leaks from memory that is noisy: does what is at rest grow, call after call, without an end?
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"

namespace headroom {

struct LeakOptions {
  // Growth within a window that is no news: allocators take memory in arenas and segments, and keep the most that they ever needed.
  // That figure grows with the logarithm of the calls, by the same amount in each doubling, so that a bound on it holds for ever.
  Bytes least_growth = MiB(5);
  // A window is judged only where it spans so many calls, or so much time: caches that fill and pools that find their size grow
  // like a leak until they are full.
  std::int64_t least_calls = 100'000;
  Duration least_time = std::chrono::minutes(30);
  // Samples are looked at once so many calls were answered, or so much time has passed, since the first: until then every thread
  // meets its first calls, and memory grows faster than ever after.
  std::int64_t warm_up_calls = 20'000;
  Duration warm_up_time = std::chrono::minutes(5);
};

// What a window of samples says.
struct LeakEstimate {
  double bytes_per_call = 0;    // Theil–Sen; 0 where no calls came
  double bytes_per_second = 0;  // Theil–Sen
  // Of a rising trend, 0 to 1, by Mann and Kendall's test with Hamed and Rao's correction for autocorrelation; 0 where nothing
  // rises. A single step up is a trend too: this says that memory has grown, `leaking` that it goes on growing.
  double confidence = 0;
  // The trend is certain (0.999), the growth passes least_growth and the noise, it is spread over the window rather than made of a
  // few steps, and does not fade.
  bool leaking = false;
  std::int64_t calls = 0;  // that the window spans
  Duration span{0};
};

// Windows of 64 points each, the first of single samples, each next one of points that stand for twice as many, for spans from half
// a minute to weeks; a point is the least of its samples, which is what is at rest when the others caught a batch. Memory is
// bounded, and a sample costs two windows on average, some thousand comparisons each.
//
// Power, by simulation (leak_detector_test): 64 bytes a call are found within 200,000 calls that make at least 50 samples, with
// noise of half a megabyte, steps of an allocator up to 1 MiB and one of 2 MiB, a third of the samples caught in a batch, and a
// warm-up that settles within 10,000 calls. Of 60,000 such processes none was missed, and none that did not leak, though it had
// steps up to 32 MiB and kept the most that it ever needed, was taken for one.
// Not found: what leaks less than least_growth in the longest window, what is hidden in noise as large as itself, what leaks by few
// large steps. Taken for a leak: what grows steadily for least_calls or least_time and stops later, such as a cache that fills
// so slowly.
//
// Not thread-safe.
class LeakDetector {
 public:
  static constexpr std::size_t kPoints = 64;
  static constexpr std::size_t kFewestPoints = 32;
  static constexpr std::size_t kLevels = 18;

  explicit LeakDetector(LeakOptions options = {}) : options_(options), levels_(kLevels) {}

  // Neither `time` nor `calls`, those answered so far, falls.
  void Add(TimePoint time, std::int64_t calls, Bytes at_rest);

  // Of the shortest window that leaks, else of the longest that can be judged; none while none can.
  std::optional<LeakEstimate> Estimate() const;

 private:
  struct Point {
    TimePoint time;
    std::int64_t calls = 0;
    Bytes bytes{0};
  };
  struct Level {
    std::vector<Point> points;    // the latest kPoints
    std::optional<Point> single;  // waits for its mate, to become a point of the next level
    std::optional<LeakEstimate> estimate;
  };

  // Of the whole window or, where that does not leak, of its latest three quarters, which a warm-up may have left.
  std::optional<LeakEstimate> JudgeLevel(std::span<const Point> points) const;
  std::optional<LeakEstimate> Judge(std::span<const Point> points) const;

  const LeakOptions options_;
  std::optional<Point> first_;
  bool warm_ = false;
  std::vector<Level> levels_;
};

}  // namespace headroom
