// Tensors in host memory, as batches go to a device and come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace headroom {

// The element types that TorchScript and the wire share.
enum class DataType { kBool, kInt8, kInt16, kInt32, kInt64, kUint8, kFp16, kBf16, kFp32, kFp64 };

// Bytes of one element.
std::int64_t SizeOf(DataType type);
// The Open Inference Protocol's name: "INT64", "FP32".
const char* NameOf(DataType type);
bool IsFloatingPoint(DataType type);

// Writes `value` as one element of `type` at `to`; an integer type takes the value truncated.
void StoreElement(DataType type, double value, std::byte* to);
// Reads one element of `type`; exact for every type but the 64-bit integers beyond 2^53.
double LoadElement(DataType type, const std::byte* from);

// Host memory that knows how it is given back (pinned memory and a library's own memory differ from malloc's).
using HostBuffer = std::unique_ptr<std::byte[], std::function<void(std::byte*)>>;

// Ordinary host memory, aligned for vector loads; `size` ≥ 0.
HostBuffer AllocateHost(Bytes size);

// A dense, row-major tensor. The shape includes the batch dimension where there is one.
struct HostTensor {
  DataType type = DataType::kFp32;
  std::vector<std::int64_t> shape;
  HostBuffer data;

  std::int64_t elements() const;
  Bytes size() const { return {elements() * SizeOf(type)}; }
  std::span<std::byte> bytes() { return {data.get(), static_cast<std::size_t>(size().count)}; }
  std::span<const std::byte> bytes() const { return {data.get(), static_cast<std::size_t>(size().count)}; }
};

// "[2, -1, 384]".
std::string ShapeText(std::span<const std::int64_t> shape);

}  // namespace headroom
