// An amount of memory as a type of its own, and arithmetic on untrusted sizes that cannot wrap.
#pragma once

#include <absl/status/statusor.h>

#include <compare>
#include <cstdint>
#include <span>
#include <string>

namespace headroom {

struct Bytes {
  std::int64_t count = 0;

  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
  constexpr Bytes& operator+=(Bytes other) { return *this = *this + other; }
  constexpr Bytes& operator-=(Bytes other) { return *this = *this - other; }
};

constexpr Bytes KiB(std::int64_t n) { return {n << 10}; }
constexpr Bytes MiB(std::int64_t n) { return {n << 20}; }
constexpr Bytes GiB(std::int64_t n) { return {n << 30}; }

// `bytes × factor`, rounded up; factor ≥ 0. The largest amount where it does not fit.
Bytes Scale(Bytes bytes, double factor);

// The product of `factors`. INVALID_ARGUMENT where one is negative or the product passes int64; the empty product is 1.
absl::StatusOr<std::int64_t> CheckedProduct(std::span<const std::int64_t> factors);

// Reads "512", "6MiB", "1.5GiB" (B, KiB, MiB, GiB, TiB; any case). INVALID_ARGUMENT for anything else.
absl::StatusOr<Bytes> ParseBytes(const std::string& text);

// For people: "1.50 GiB", "512 B".
std::string ToString(Bytes bytes);

}  // namespace headroom
