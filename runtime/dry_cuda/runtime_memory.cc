// The calls of the CUDA runtime about device memory, pinned memory and copies.
#include <cuda_runtime_api.h>

#include <cstring>

#include "dry_state.h"
#include "stream_table.h"

using headroom::dry_cuda::ContextError;
using headroom::dry_cuda::CurrentDevice;
using headroom::dry_cuda::DeviceOfStream;
using headroom::dry_cuda::IsDevice;
using headroom::dry_cuda::Report;
using headroom::dry_cuda::State;

namespace {

cudaError_t Copy(void* to, const void* from, std::size_t bytes) {
  if (const cudaError_t lost = ContextError(); lost != cudaSuccess) return Report(lost);
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return Report(cudaErrorInvalidValue);
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t Fill(void* to, int value, std::size_t bytes) {
  if (const cudaError_t lost = ContextError(); lost != cudaSuccess) return Report(lost);
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr) return Report(cudaErrorInvalidValue);
  std::memset(to, value, bytes);
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (pointer == nullptr) return Report(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (!IsDevice(CurrentDevice())) return Report(cudaErrorNoDevice);
  State().LookAtFaultsFile();
  if (const cudaError_t lost = ContextError(); lost != cudaSuccess) return Report(lost);
  if (bytes == 0) return cudaSuccess;
  if (State().faults.MallocFails()) return Report(cudaErrorMemoryAllocation);
  *pointer = State().memory.Allocate(CurrentDevice(), bytes);
  return Report(*pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFree(void* pointer) {
  if (const cudaError_t lost = ContextError(); lost != cudaSuccess) return Report(lost);
  // libtorch frees a null pointer to make the runtime create its context.
  if (pointer == nullptr) return Report(State().cards.empty() ? cudaErrorNoDevice : cudaSuccess);
  return Report(State().memory.Free(pointer) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  if (free_bytes == nullptr || total_bytes == nullptr) return Report(cudaErrorInvalidValue);
  if (!IsDevice(CurrentDevice())) return Report(cudaErrorNoDevice);
  State().LookAtFaultsFile();
  if (const cudaError_t lost = ContextError(); lost != cudaSuccess) return Report(lost);
  // Any error that is not sticky: the question alone is not answered.
  if (State().faults.MemoryQueryFails()) return Report(cudaErrorUnknown);
  const auto usage = State().memory.GetUsage(CurrentDevice());
  *free_bytes = usage.free_bytes;
  *total_bytes = usage.total_bytes;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned int /*flags*/) {
  if (pointer == nullptr) return Report(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (State().cards.empty()) return Report(cudaErrorNoDevice);
  if (const cudaError_t lost = ContextError(); lost != cudaSuccess) return Report(lost);
  if (bytes == 0) return cudaSuccess;
  *pointer = State().pinned.Allocate(bytes);
  return Report(*pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) { return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault); }

cudaError_t cudaFreeHost(void* pointer) {
  if (const cudaError_t lost = ContextError(); lost != cudaSuccess) return Report(lost);
  if (pointer == nullptr) return cudaSuccess;
  return Report(State().pinned.Free(pointer) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned int /*flags*/) {
  if (const cudaError_t lost = ContextError(); lost != cudaSuccess) return Report(lost);
  if (pointer == nullptr || bytes == 0) return Report(cudaErrorInvalidValue);
  return Report(State().pinned.Register(pointer, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void* pointer) {
  if (const cudaError_t lost = ContextError(); lost != cudaSuccess) return Report(lost);
  return Report(State().pinned.Unregister(pointer) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (attributes == nullptr) return Report(cudaErrorInvalidValue);
  *attributes = {};
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = -2;  // cudaInvalidDeviceId, what the runtime says of memory that is not its own.
  // Device and pinned addresses are the same for host and card here, as with unified addressing.
  auto* address = const_cast<void*>(pointer);
  if (const auto device = State().memory.DeviceOf(pointer); device.has_value()) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = *device;
    attributes->devicePointer = address;
  } else if (State().pinned.Contains(pointer)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->device = CurrentDevice();
    attributes->devicePointer = address;
    attributes->hostPointer = address;
  } else {
    attributes->hostPointer = address;
  }
  return cudaSuccess;
}

// All memory is in this address space, so one copy serves every direction; and it is over when the call returns, which
// a program that is right about streams cannot tell from a copy that ends later.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/) { return Copy(to, from, bytes); }

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  if (!DeviceOfStream(stream).has_value()) return Report(cudaErrorInvalidResourceHandle);
  return Copy(to, from, bytes);
}

cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, std::size_t bytes) {
  if (!IsDevice(to_device) || !IsDevice(from_device)) return Report(cudaErrorInvalidDevice);
  return Copy(to, from, bytes);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream) {
  if (!DeviceOfStream(stream).has_value()) return Report(cudaErrorInvalidResourceHandle);
  return cudaMemcpyPeer(to, to_device, from, from_device, bytes);
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) { return Fill(to, value, bytes); }

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (!DeviceOfStream(stream).has_value()) return Report(cudaErrorInvalidResourceHandle);
  return Fill(to, value, bytes);
}
