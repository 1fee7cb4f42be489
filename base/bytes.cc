#include "base/bytes.h"

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace headroom {
namespace {

constexpr std::array<std::pair<const char*, int>, 5> kUnits = {{{"tib", 40}, {"gib", 30}, {"mib", 20}, {"kib", 10}, {"b", 0}}};

}  // namespace

Bytes Scale(Bytes bytes, double factor) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const double scaled = std::ceil(static_cast<double>(bytes.count) * factor);
  return {scaled < static_cast<double>(kMost) ? static_cast<std::int64_t>(scaled) : kMost};
}

absl::StatusOr<std::int64_t> CheckedProduct(std::span<const std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (factor < 0) return absl::InvalidArgumentError(absl::StrCat("a size is negative: ", factor));
    if (__builtin_mul_overflow(product, factor, &product)) {
      return absl::InvalidArgumentError("the product of the sizes does not fit 64 bits");
    }
  }
  return product;
}

absl::StatusOr<Bytes> ParseBytes(const std::string& text) {
  const auto bad = [&] { return absl::InvalidArgumentError(absl::StrCat("not a size such as 512MiB or 2GiB: '", text, "'")); };
  std::string number = absl::AsciiStrToLower(text);
  int shift = 0;
  for (const auto& [unit, bits] : kUnits) {
    const std::string suffix = unit;
    if (number.size() > suffix.size() && number.ends_with(suffix)) {
      number.resize(number.size() - suffix.size());
      shift = bits;
      break;
    }
  }
  if (number.find_first_not_of("0123456789.") != std::string::npos) return bad();
  double value = 0;
  if (!absl::SimpleAtod(number, &value)) return bad();
  value = std::ldexp(value, shift);
  if (!(value < static_cast<double>(std::numeric_limits<std::int64_t>::max()))) return bad();
  return Bytes{static_cast<std::int64_t>(value)};
}

std::string ToString(Bytes bytes) {
  for (const auto& [unit, bits] : kUnits) {
    if (bits == 0 || std::abs(bytes.count) < (std::int64_t{1} << bits)) continue;
    static constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
    return absl::StrFormat("%.2f %s", std::ldexp(static_cast<double>(bytes.count), -bits),
                           kNames.at(static_cast<std::size_t>(bits / 10)));
  }
  return absl::StrCat(bytes.count, " B");
}

}  // namespace headroom
