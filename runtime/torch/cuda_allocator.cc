#include "runtime/torch/cuda_allocator.h"

#include <absl/strings/str_cat.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include "base/log.h"
#include "runtime/torch/torch_error.h"

namespace headroom {
namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

CudaAllocatorChoice Choose(bool dry) {
  CudaAllocatorChoice choice;
  choice.backend = c10::cuda::CUDACachingAllocator::name();
  choice.expandable_segments = AcceleratorAllocatorConfig::use_expandable_segments();
  const std::string settings = c10::CachingAllocator::getAllocatorSettings();
  if (!settings.empty()) choice.settings = ErrorLine(settings);
  if (settings.find("expandable_segments") != std::string::npos) {
    choice.why = "PYTORCH_ALLOC_CONF says so";
  } else {
    choice.why = "batches are measured and tested with ordinary segments; PYTORCH_ALLOC_CONF may say otherwise";
  }
  if (dry && choice.expandable_segments) {
    c10::CachingAllocator::setAllocatorSettings("expandable_segments:False");
    choice.expandable_segments = false;
    choice.why = "PYTORCH_ALLOC_CONF asks for expandable segments, which do not run on a dry card";
  }
  Log(LogLevel::kInfo, "cuda allocator",
      {{"backend", choice.backend},
       {"expandable_segments", choice.expandable_segments ? "on" : "off"},
       {"reason", choice.why},
       {"settings", choice.settings}});
  return choice;
}

}  // namespace

std::string CudaAllocatorChoice::Fingerprint() const {
  std::string text;
  if (backend != "native") absl::StrAppend(&text, ", allocator ", backend);
  if (expandable_segments) absl::StrAppend(&text, ", expandable segments");
  if (!settings.empty()) absl::StrAppend(&text, ", allocator settings ", settings);
  return text;
}

CudaAllocatorChoice ChooseCudaAllocator(bool dry) {
  static const CudaAllocatorChoice choice = Choose(dry);
  return choice;
}

absl::Status CheckAllocatorCounts(int index) {
  const auto device = static_cast<c10::DeviceIndex>(index);
  const c10::cuda::CUDAGuard guard(device);
  const auto counted = [&] { return c10::cuda::CUDACachingAllocator::getDeviceStats(device).allocated_bytes[0].current; };
  bool counts = false;
  const auto failure = CatchFailure([&] {
    void* const block = c10::cuda::CUDACachingAllocator::raw_alloc(1);
    const auto with_block = counted();
    c10::cuda::CUDACachingAllocator::raw_delete(block);
    counts = with_block > counted();
  });
  if (failure.has_value() && !failure->out_of_memory) return absl::FailedPreconditionError(failure->text);
  // One that has refused knows its limit.
  if (counts || failure.has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "libtorch's caching allocator counts nothing, so that no budget can be kept; is PYTORCH_NO_CUDA_MEMORY_CACHING set?");
}

}  // namespace headroom
