// What libFuzzer calls. Compiled once for each target, with its function in HEADROOM_FUZZ_TARGET.
#include <cstddef>
#include <cstdint>

#include "test/fuzz/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  headroom::HEADROOM_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
