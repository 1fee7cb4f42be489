// The calls of the CUDA runtime about kernels: their launch, which is checked and then skipped, and their attributes.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "dry_state.h"
#include "stream_table.h"

using headroom::dry_cuda::ContextError;
using headroom::dry_cuda::CurrentDevice;
using headroom::dry_cuda::DeviceOfStream;
using headroom::dry_cuda::IsDevice;
using headroom::dry_cuda::kBlockDepth;
using headroom::dry_cuda::kGridHeightAndDepth;
using headroom::dry_cuda::kGridWidth;
using headroom::dry_cuda::kThreadsPerBlock;
using headroom::dry_cuda::Report;
using headroom::dry_cuda::Silicon;
using headroom::dry_cuda::State;

namespace {

constexpr int kRegistersPerThread = 32;

const Silicon& CurrentSilicon() { return *State().cards[static_cast<std::size_t>(CurrentDevice())].silicon; }

bool Within(unsigned int extent, int limit) { return extent >= 1 && extent <= static_cast<unsigned int>(limit); }

// Finds the mistakes that a GPU would report without running anything: an empty grid, as a batch of no rows gives, a
// block that is too large, and a stream that is gone or of another card. A launch that trips an assertion succeeds: it is a later
// call that finds out.
cudaError_t CheckLaunch(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream) {
  if (!IsDevice(CurrentDevice())) return cudaErrorNoDevice;
  const bool grid_fits = Within(grid.x, kGridWidth) && Within(grid.y, kGridHeightAndDepth) && Within(grid.z, kGridHeightAndDepth);
  const bool block_fits = Within(block.x, kThreadsPerBlock) && Within(block.y, kThreadsPerBlock) && Within(block.z, kBlockDepth) &&
                          Within(block.x * block.y * block.z, kThreadsPerBlock);
  if (!grid_fits || !block_fits) return cudaErrorInvalidConfiguration;
  if (shared_bytes > CurrentSilicon().shared_bytes_per_block_optin) return cudaErrorInvalidValue;
  const auto device = DeviceOfStream(stream);
  if (!device.has_value() || *device != CurrentDevice()) return cudaErrorInvalidResourceHandle;
  State().LookAtFaultsFile();
  if (const cudaError_t lost = ContextError(); lost != cudaSuccess) return lost;
  State().faults.Launch(*device);
  return cudaSuccess;
}

}  // namespace

extern "C" {

// The compiler turns kernel<<<...>>>(...) into this call and, when it returns 0, a call of the kernel's stub. Returning
// anything else skips the stub; what was wrong is found by the cudaGetLastError that follows a launch.
unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream) {
  Report(CheckLaunch(grid, block, shared_bytes, stream));
  return 1;
}

// A kernel is known by the address of its stub, for want of a loaded module that could hold it.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  if (kernel == nullptr || stub == nullptr) return Report(cudaErrorInvalidValue);
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t /*kernel*/, dim3 grid, dim3 block, void** /*arguments*/, std::size_t shared_bytes,
                               cudaStream_t stream) {
  return Report(CheckLaunch(grid, block, shared_bytes, stream));
}

}  // extern "C"

cudaError_t cudaLaunchKernel(const void* /*kernel*/, dim3 grid, dim3 block, void** /*arguments*/, std::size_t shared_bytes,
                             cudaStream_t stream) {
  return Report(CheckLaunch(grid, block, shared_bytes, stream));
}

cudaError_t cudaLaunchCooperativeKernel(const void* /*kernel*/, dim3 grid, dim3 block, void** /*arguments*/,
                                        std::size_t shared_bytes, cudaStream_t stream) {
  return Report(CheckLaunch(grid, block, shared_bytes, stream));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* /*kernel*/, void** /*arguments*/) {
  if (config == nullptr) return Report(cudaErrorInvalidValue);
  return Report(CheckLaunch(config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream));
}

// Libraries of algorithms (CUB) pick their tuning, and with it their scratch memory, by ptxVersion: it is the card's.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* /*kernel*/) {
  if (attributes == nullptr) return Report(cudaErrorInvalidValue);
  if (!IsDevice(CurrentDevice())) return Report(cudaErrorNoDevice);
  const Silicon& silicon = CurrentSilicon();
  *attributes = {};
  attributes->maxThreadsPerBlock = kThreadsPerBlock;
  attributes->numRegs = kRegistersPerThread;
  attributes->ptxVersion = silicon.major * 10 + silicon.minor;
  attributes->binaryVersion = attributes->ptxVersion;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(silicon.shared_bytes_per_block_optin);
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* /*kernel*/, cudaFuncAttribute attribute, int value) {
  if (!IsDevice(CurrentDevice())) return Report(cudaErrorNoDevice);
  const bool too_much_shared = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize &&
                               (value < 0 || static_cast<std::size_t>(value) > CurrentSilicon().shared_bytes_per_block_optin);
  return Report(too_much_shared ? cudaErrorInvalidValue : cudaSuccess);
}

// What the limits of threads, blocks and shared memory allow; the kernel's registers are not known.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* /*kernel*/, int block_size,
                                                                   std::size_t shared_bytes, unsigned int /*flags*/) {
  if (blocks == nullptr || block_size <= 0) return Report(cudaErrorInvalidValue);
  if (!IsDevice(CurrentDevice())) return Report(cudaErrorNoDevice);
  const Silicon& silicon = CurrentSilicon();
  *blocks = std::min(silicon.blocks_per_multiprocessor, silicon.threads_per_multiprocessor / block_size);
  if (shared_bytes > 0) {
    *blocks = std::min(*blocks, static_cast<int>(silicon.shared_bytes_per_multiprocessor / shared_bytes));
  }
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int block_size,
                                                          std::size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, block_size, shared_bytes, cudaOccupancyDefault);
}
