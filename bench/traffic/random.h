// Numbers that are the same on every machine for the same seed: the standard's distributions are each library's own.
#pragma once

#include <cstdint>
#include <random>

namespace headroom {

using Random = std::mt19937_64;

// In [0, 1).
inline double Uniform(Random& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

// From `low` to `high`, both included; low ≤ high.
inline std::int64_t UniformInteger(Random& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(Uniform(random) * static_cast<double>(high - low + 1));
}

}  // namespace headroom
