// An open file as libtorch reads one.
#pragma once

#include <caffe2/serialize/read_adapter_interface.h>

#include <cstddef>

namespace headroom {

// Reads at places of its own and leaves the descriptor's position alone. Does not own the descriptor, which outlives it.
class DescriptorReader final : public caffe2::serialize::ReadAdapterInterface {
 public:
  DescriptorReader(int descriptor, std::size_t size) : descriptor_(descriptor), size_(size) {}

  std::size_t size() const override { return size_; }
  // Less than asked for is what libtorch takes for a failure.
  std::size_t read(std::uint64_t position, void* to, std::size_t count, const char* what) const override;

 private:
  const int descriptor_;
  const std::size_t size_;
};

}  // namespace headroom
