// Host tensors from literal values.
#pragma once

#include <utility>
#include <vector>

#include "runtime/tensor.h"

namespace headroom {

inline HostTensor TensorOf(DataType type, std::vector<std::int64_t> shape, const std::vector<double>& values) {
  HostTensor tensor{type, std::move(shape), nullptr};
  tensor.data = AllocateHost(tensor.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    StoreElement(type, values[i], tensor.data.get() + static_cast<std::int64_t>(i) * SizeOf(type));
  }
  return tensor;
}

}  // namespace headroom
