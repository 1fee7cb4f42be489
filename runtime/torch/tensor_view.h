// Between a HostTensor and a tensor of libtorch's on the CPU, without copies.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "runtime/tensor.h"

namespace headroom {

c10::ScalarType ScalarTypeOf(DataType type);
// Nothing for a type that the wire does not know: complex, quantised, …
std::optional<DataType> DataTypeOf(c10::ScalarType type);

// A tensor over the host tensor's own memory, which must outlive it. May throw what libtorch throws.
at::Tensor ViewOf(const HostTensor& tensor);

// The CPU tensor `tensor` as a host tensor that owns it. Nothing is copied where `tensor` is dense and the last reference to its
// memory, so the caller gives up its own first. Its type is one that DataTypeOf knows. May throw what libtorch throws.
HostTensor ToHostTensor(at::Tensor tensor);

}  // namespace headroom
