// Half of the mutations of a message keep it a message: libFuzzer's own see no fields.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "test/fuzz/wire_mutator.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

std::size_t Put(const std::string& message, std::uint8_t* to, std::size_t most) {
  const std::size_t size = std::min(message.size(), most);
  std::copy_n(message.begin(), size, reinterpret_cast<char*>(to));
  return size;
}

std::string_view TextOf(const std::uint8_t* data, std::size_t size) { return {reinterpret_cast<const char*>(data), size}; }

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned int seed) {
  if (seed % 2 == 0) return LLVMFuzzerMutate(data, size, most);
  const std::string_view message = TextOf(data, size);
  return Put(headroom::WireMutator(seed).Mutate(message, message), data, most);
}

extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* data, std::size_t size, const std::uint8_t* other,
                                                 std::size_t other_size, std::uint8_t* out, std::size_t most, unsigned int seed) {
  return Put(headroom::WireMutator(seed).Splice(TextOf(data, size), TextOf(other, other_size)), out, most);
}
