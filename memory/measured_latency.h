// How long a batch of a shape should take, from the latencies that were measured along with its memory. Coarse and on the high
// side: a bound to tell a hung run by, not a forecast to plan with.
#pragma once

#include <span>

#include "base/clock.h"
#include "memory/memory_estimator.h"
#include "runtime/device.h"

namespace headroom {

// The latency of the quickest measured batch that is no smaller in rows and in length. Where none is: the slowest one's, times the
// ratio of their rows × length. Zero where nothing was measured.
Duration MeasuredLatency(std::span<const LengthCurve> curves, const BatchShape& shape);

}  // namespace headroom
