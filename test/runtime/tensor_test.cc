#include "runtime/tensor.h"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

namespace headroom {
namespace {

double RoundTrip(DataType type, double value) {
  std::array<std::byte, 8> element{};
  StoreElement(type, value, element.data());
  return LoadElement(type, element.data());
}

TEST_CASE("each type has its size and its name on the wire", "[tensor]") {
  const auto [type, size, name, floating] = GENERATE(table<DataType, std::int64_t, std::string, bool>({
      {DataType::kBool, 1, "BOOL", false},
      {DataType::kInt8, 1, "INT8", false},
      {DataType::kInt16, 2, "INT16", false},
      {DataType::kInt32, 4, "INT32", false},
      {DataType::kInt64, 8, "INT64", false},
      {DataType::kUint8, 1, "UINT8", false},
      {DataType::kFp16, 2, "FP16", true},
      {DataType::kBf16, 2, "BF16", true},
      {DataType::kFp32, 4, "FP32", true},
      {DataType::kFp64, 8, "FP64", true},
  }));
  CAPTURE(name);
  CHECK(SizeOf(type) == size);
  CHECK(NameOf(type) == name);
  CHECK(IsFloatingPoint(type) == floating);
}

TEST_CASE("an element comes back as it was stored, as far as its type can tell", "[tensor]") {
  const auto [type, value, back] = GENERATE(table<DataType, double, double>({
      {DataType::kBool, 0, 0},
      {DataType::kBool, 1, 1},
      {DataType::kBool, -3, 1},
      {DataType::kInt8, -128, -128},
      {DataType::kInt8, 127, 127},
      {DataType::kInt16, -32768, -32768},
      {DataType::kInt16, 32767, 32767},
      {DataType::kInt32, -2147483648.0, -2147483648.0},
      {DataType::kInt32, 2147483647, 2147483647},
      {DataType::kInt64, 0x1p53, 0x1p53},
      {DataType::kInt64, -0x1p53, -0x1p53},
      {DataType::kInt64, 2.9, 2},
      {DataType::kInt64, -2.9, -2},
      {DataType::kUint8, 255, 255},
      {DataType::kFp16, 1.5, 1.5},
      {DataType::kFp16, 65504, 65504},
      {DataType::kFp16, 0.1, 0.0999755859375},
      {DataType::kFp16, 1 + 0x1p-11, 1},               // half way: to even, down
      {DataType::kFp16, 1 + 3 * 0x1p-11, 1 + 0x1p-9},  // half way: to even, up
      {DataType::kFp16, 0x1p-24, 0x1p-24},             // the smallest there is
      {DataType::kFp16, 0x1p-25, 0},                   // half way to it: to even, down
      {DataType::kFp16, 0x1.ffcp-15, 0x1p-14},         // rounds up out of the denormals
      {DataType::kFp16, 65519, 65504},
      {DataType::kFp16, -65520, -std::numeric_limits<double>::infinity()},
      {DataType::kBf16, 1.5, 1.5},
      {DataType::kBf16, 0x1p100, 0x1p100},
      {DataType::kBf16, 1 + 0x1p-8, 1},               // half way: to even, down
      {DataType::kBf16, 1 + 3 * 0x1p-8, 1 + 0x1p-6},  // half way: to even, up
      {DataType::kBf16, 1 + 0x1.1p-8, 1 + 0x1p-7},    // above half way
      {DataType::kFp32, 0.1, static_cast<double>(0.1F)},
      {DataType::kFp64, 0.1, 0.1},
  }));
  CAPTURE(NameOf(type), value);
  CHECK(RoundTrip(type, value) == back);
}

TEST_CASE("infinity and NaN stay what they are in every floating type", "[tensor]") {
  const DataType type = GENERATE(DataType::kFp16, DataType::kBf16, DataType::kFp32, DataType::kFp64);
  CAPTURE(NameOf(type));
  CHECK(RoundTrip(type, std::numeric_limits<double>::infinity()) == std::numeric_limits<double>::infinity());
  CHECK(RoundTrip(type, -std::numeric_limits<double>::infinity()) == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(RoundTrip(type, std::numeric_limits<double>::quiet_NaN())));
  CHECK(std::isnan(RoundTrip(type, std::nan("0xFFFFFFFFFFFFF"))));  // all bits of its payload set
}

TEST_CASE("a store touches only its own element", "[tensor]") {
  const DataType type = GENERATE(DataType::kBool, DataType::kInt16, DataType::kBf16, DataType::kFp32);
  std::array<std::byte, 8> bytes{};
  bytes.fill(std::byte{0xAA});
  StoreElement(type, 1, bytes.data());
  for (auto i = static_cast<std::size_t>(SizeOf(type)); i < bytes.size(); ++i) CHECK(bytes[i] == std::byte{0xAA});
}

TEST_CASE("a tensor knows its elements and bytes", "[tensor]") {
  HostTensor tensor{DataType::kInt16, {2, 3, 4}, AllocateHost(Bytes{48})};
  CHECK(tensor.elements() == 24);
  CHECK(tensor.size() == Bytes{48});
  CHECK(tensor.bytes().size() == 48);
  tensor.shape = {};
  CHECK(tensor.elements() == 1);
  tensor.shape = {0, 7};
  CHECK(tensor.size() == Bytes{0});
}

TEST_CASE("host memory is aligned for vector loads and writable to its end", "[tensor]") {
  for (const std::int64_t size : {0, 1, 63, 64, 100000}) {
    const HostBuffer buffer = AllocateHost(Bytes{size});
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.get()) % 64 == 0);
    std::memset(buffer.get(), 1, static_cast<std::size_t>(size));
  }
}

TEST_CASE("a shape is written in brackets", "[tensor]") {
  CHECK(ShapeText(std::vector<std::int64_t>{}) == "[]");
  CHECK(ShapeText(std::vector<std::int64_t>{2, -1, 384}) == "[2, -1, 384]");
}

}  // namespace
}  // namespace headroom
