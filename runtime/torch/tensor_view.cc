#include "runtime/torch/tensor_view.h"

#include <ATen/ops/from_blob.h>

#include <cstdlib>
#include <utility>

namespace headroom {

c10::ScalarType ScalarTypeOf(DataType type) {
  switch (type) {
    case DataType::kBool: return c10::ScalarType::Bool;
    case DataType::kInt8: return c10::ScalarType::Char;
    case DataType::kInt16: return c10::ScalarType::Short;
    case DataType::kInt32: return c10::ScalarType::Int;
    case DataType::kInt64: return c10::ScalarType::Long;
    case DataType::kUint8: return c10::ScalarType::Byte;
    case DataType::kFp16: return c10::ScalarType::Half;
    case DataType::kBf16: return c10::ScalarType::BFloat16;
    case DataType::kFp32: return c10::ScalarType::Float;
    case DataType::kFp64: return c10::ScalarType::Double;
  }
  std::abort();
}

std::optional<DataType> DataTypeOf(c10::ScalarType type) {
  for (const DataType known : {DataType::kBool, DataType::kInt8, DataType::kInt16, DataType::kInt32, DataType::kInt64,
                               DataType::kUint8, DataType::kFp16, DataType::kBf16, DataType::kFp32, DataType::kFp64}) {
    if (ScalarTypeOf(known) == type) return known;
  }
  return std::nullopt;
}

at::Tensor ViewOf(const HostTensor& tensor) {
  // libtorch has no tensor over constant memory. Nobody writes: inputs that a module writes to are copied first.
  auto* const memory = const_cast<std::byte*>(tensor.data.get());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  return at::from_blob(memory, tensor.shape, at::TensorOptions().dtype(ScalarTypeOf(tensor.type)));
}

HostTensor ToHostTensor(at::Tensor tensor) {
  if (tensor.is_conj() || tensor.is_neg()) tensor = tensor.resolve_conj().resolve_neg();
  if (!tensor.is_contiguous()) {
    tensor = tensor.contiguous();
  } else if (tensor.use_count() > 1 || tensor.storage().use_count() > 1) {
    // It is an input, a weight or a part of another output, whose memory is not ours to hand out.
    tensor = tensor.clone(at::MemoryFormat::Contiguous);
  }
  HostTensor host;
  host.type = DataTypeOf(tensor.scalar_type()).value();
  host.shape = tensor.sizes().vec();
  auto* const memory = static_cast<std::byte*>(tensor.mutable_data_ptr());
  host.data = {memory, [owner = std::move(tensor)](std::byte*) mutable { owner.reset(); }};
  return host;
}

}  // namespace headroom
