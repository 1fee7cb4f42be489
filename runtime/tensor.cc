#include "runtime/tensor.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace headroom {
namespace {

template <class T>
void Store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

template <class T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// A brain float is the upper half of a float.
std::uint16_t ToBf16(float value) {
  if (std::isnan(value)) return 0x7FC0;  // rounding could carry its payload into the exponent and the sign
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}
float FromBf16(std::uint16_t value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16U); }

// Half precision: a sign, 5 bits of exponent (15 is 1), 10 of mantissa. By hand, as not every compiler has the type on every
// target. Rounds to nearest, ties to even, once.
std::uint16_t ToFp16(double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double size = std::abs(value);
  if (std::isnan(value)) return sign | 0x7E00;
  if (size >= 65520) return sign | 0x7C00;  // what would round to 2^16, infinity
  const int exponent = size < 0x1p-14 ? -14 : std::ilogb(size);
  // In units of the last place; below 2^-14 there is no leading one, and a mantissa that rounds up carries into the exponent.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return static_cast<std::uint16_t>(sign | (((exponent + 14) << 10) + units));
}
double FromFp16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const int mantissa = bits & 0x3FF;
  double size = 0;
  if (exponent == 0x1F) {
    size = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else {
    size = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 0x400, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -size : size;
}

}  // namespace

std::int64_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kBool:
    case DataType::kInt8:
    case DataType::kUint8: return 1;
    case DataType::kInt16:
    case DataType::kFp16:
    case DataType::kBf16: return 2;
    case DataType::kInt32:
    case DataType::kFp32: return 4;
    case DataType::kInt64:
    case DataType::kFp64: return 8;
  }
  std::abort();
}

const char* NameOf(DataType type) {
  switch (type) {
    case DataType::kBool: return "BOOL";
    case DataType::kInt8: return "INT8";
    case DataType::kInt16: return "INT16";
    case DataType::kInt32: return "INT32";
    case DataType::kInt64: return "INT64";
    case DataType::kUint8: return "UINT8";
    case DataType::kFp16: return "FP16";
    case DataType::kBf16: return "BF16";
    case DataType::kFp32: return "FP32";
    case DataType::kFp64: return "FP64";
  }
  std::abort();
}

bool IsFloatingPoint(DataType type) {
  return type == DataType::kFp16 || type == DataType::kBf16 || type == DataType::kFp32 || type == DataType::kFp64;
}

void StoreElement(DataType type, double value, std::byte* to) {
  switch (type) {
    case DataType::kBool: return Store<std::uint8_t>(value != 0 ? 1 : 0, to);
    case DataType::kInt8: return Store(static_cast<std::int8_t>(value), to);
    case DataType::kInt16: return Store(static_cast<std::int16_t>(value), to);
    case DataType::kInt32: return Store(static_cast<std::int32_t>(value), to);
    case DataType::kInt64: return Store(static_cast<std::int64_t>(value), to);
    case DataType::kUint8: return Store(static_cast<std::uint8_t>(value), to);
    case DataType::kFp16: return Store(ToFp16(value), to);
    case DataType::kBf16: return Store(ToBf16(static_cast<float>(value)), to);
    case DataType::kFp32: return Store(static_cast<float>(value), to);
    case DataType::kFp64: return Store(value, to);
  }
}

double LoadElement(DataType type, const std::byte* from) {
  switch (type) {
    case DataType::kBool: return Load<std::uint8_t>(from) != 0 ? 1 : 0;
    case DataType::kInt8: return Load<std::int8_t>(from);
    case DataType::kInt16: return Load<std::int16_t>(from);
    case DataType::kInt32: return Load<std::int32_t>(from);
    case DataType::kInt64: return static_cast<double>(Load<std::int64_t>(from));
    case DataType::kUint8: return Load<std::uint8_t>(from);
    case DataType::kFp16: return FromFp16(Load<std::uint16_t>(from));
    case DataType::kBf16: return FromBf16(Load<std::uint16_t>(from));
    case DataType::kFp32: return Load<float>(from);
    case DataType::kFp64: return Load<double>(from);
  }
  std::abort();
}

HostBuffer AllocateHost(Bytes size) {
  constexpr std::align_val_t kAlignment{64};
  auto* const memory = static_cast<std::byte*>(::operator new(static_cast<std::size_t>(size.count), kAlignment));
  return {memory, [](std::byte* buffer) { ::operator delete(buffer, kAlignment); }};
}

std::int64_t HostTensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t dim : shape) product *= dim;
  return product;
}

std::string ShapeText(std::span<const std::int64_t> shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

}  // namespace headroom
