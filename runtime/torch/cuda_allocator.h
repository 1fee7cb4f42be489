// How libtorch's CUDA caching allocator is set up in this process.
#pragma once

#include <absl/status/statusor.h>

#include <string>

namespace headroom {

struct CudaAllocatorChoice {
  std::string backend;  // "native", but for what PYTORCH_ALLOC_CONF says
  bool expandable_segments = false;
  std::string why;       // of expandable segments or none
  std::string settings;  // what PYTORCH_ALLOC_CONF says, one line; empty where it says nothing

  // What measured memory depends on, one line; empty where nothing was set.
  std::string Fingerprint() const;
};

// What PYTORCH_ALLOC_CONF says is kept, but for expandable segments on a dry card, which cannot run them. Without it segments are
// ordinary ones: the growth of held memory is measured with them, and they are what runs on dry cards. Sets nothing up before the
// first tensor; logs once a process.
CudaAllocatorChoice ChooseCudaAllocator(bool dry);

// FAILED_PRECONDITION where the allocator does not count what it gives on device `index`, so that no budget could be kept. May
// throw what libtorch throws.
absl::Status CheckAllocatorCounts(int index);

}  // namespace headroom
