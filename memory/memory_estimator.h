// How much memory a batch takes at its peak, from measurements of this model on this device.
#pragma once

#include <absl/status/statusor.h>

#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "runtime/device.h"

namespace headroom {

class MemoryEstimator {
 public:
  virtual ~MemoryEstimator() = default;
  // Peak bytes of one batch of `shape`. Monotone in rows and in length, but for an allocator's segments. OUT_OF_RANGE for a length
  // beyond what is known.
  virtual absl::StatusOr<Bytes> Peak(BatchShape shape) const = 0;
};

// One measured point.
struct Measurement {
  std::int64_t rows = 0;
  Bytes peak{0};
  Duration latency{0};
  Bytes tensors{0};  // RunOutput::tensor_peak(): what a run of this shape is compared with
};

// What is known at one padded length.
struct LengthCurve {
  std::int64_t length = 0;
  std::vector<Measurement> points;  // ascending in rows; empty where not even one row fitted
  // Where more rows did not fit: what they took at least, so more than that is needed. 0: never tried in vain.
  std::int64_t failed_rows = 0;
  Bytes failed_at_least{0};
  // Whether a length between the curve before and this one may be interpolated: a measurement in between has agreed.
  bool smooth_below = false;
};

// What an allocator's rounding may add to a figure that is not itself measured.
struct PeakRounding {
  Bytes between_points{0};  // to what lies between two measured points
  // To what a larger shape was measured to take, of more rows or of a longer length: where memory is taken in segments, a smaller
  // one may need another kind of them.
  Bytes below_larger{0};
};

// Reads a peak off measured curves.
//
// Peak memory is a maximum over program points, each of them affine in rows at a given length, so it is convex in rows:
// interpolating between two measured points does not under-estimate, a line beyond the last one may. Sizes are rounded by the
// allocator, which can lift a point between two measured ones above their line: by a few blocks, or by a segment where what is
// measured is what an allocator takes from the device. The rounding covers it.
class CalibratedEstimator final : public MemoryEstimator {
 public:
  // `curves` ascend in length and are not empty.
  explicit CalibratedEstimator(std::vector<LengthCurve> curves, PeakRounding rounding = kBlocks);

  absl::StatusOr<Bytes> Peak(BatchShape shape) const override;
  // What was measured; ascending in length.
  const std::vector<LengthCurve>& curves() const { return curves_; }

  // Eight blocks of 512 bytes, the CPU allocator's: as many tensors as may end in a block of their own at a peak.
  static constexpr PeakRounding kBlocks{KiB(4), Bytes{0}};
  // A segment of PyTorch's CUDA allocator for tensors of 1 to 10 MiB.
  static constexpr PeakRounding kSegments{MiB(20), MiB(20)};
  // Of the bytes that such a device's allocator holds.
  static constexpr PeakRounding RoundingOn(DeviceKind kind) { return kind == DeviceKind::kCuda ? kSegments : kBlocks; }
  // What rows beyond the largest measured batch are over-estimated by, since the line may be left there.
  static constexpr double kBeyondMeasured = 1.25;
  // The same for a length in between, of rows that only the shorter of its neighbours was measured at.
  static constexpr double kInProportion = 1.01;

 private:
  // By the points of one curve; `allowance` is added between them.
  Bytes AlongCurve(std::size_t curve, std::int64_t rows, Bytes allowance) const;
  Bytes OnCurve(std::size_t curve, std::int64_t rows) const;
  Bytes Between(std::size_t curve, double share, std::int64_t rows) const;
  Bytes PlainBetween(std::size_t curve, double share, std::int64_t rows) const;
  Bytes MeasuredBelow(std::size_t curve, std::int64_t rows) const;

  std::vector<LengthCurve> curves_;
  PeakRounding rounding_;
};

}  // namespace headroom
