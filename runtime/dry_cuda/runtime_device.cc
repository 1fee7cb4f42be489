// The calls of the CUDA runtime about devices and their properties, and about errors.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <string>
#include <utility>

#include "dry_state.h"

using headroom::dry_cuda::Card;
using headroom::dry_cuda::ClearLastError;
using headroom::dry_cuda::ContextError;
using headroom::dry_cuda::CurrentDevice;
using headroom::dry_cuda::IsDevice;
using headroom::dry_cuda::kBlockDepth;
using headroom::dry_cuda::kGridHeightAndDepth;
using headroom::dry_cuda::kGridWidth;
using headroom::dry_cuda::kThreadsPerBlock;
using headroom::dry_cuda::LastError;
using headroom::dry_cuda::NameRefusedCall;
using headroom::dry_cuda::Report;
using headroom::dry_cuda::SetCurrentDevice;
using headroom::dry_cuda::State;
using headroom::dry_cuda::Synchronize;

namespace {

constexpr int kLowestPriority = 0;
constexpr int kHighestPriority = -5;

// Figures of no consequence to memory, in which real cards of one capability differ.
constexpr int kClockKilohertz = 1'410'000;
constexpr int kMemoryClockKilohertz = 1'215'000;
constexpr int kMemoryBusBits = 5120;

// Buses from 1 on: 0 is where the host's own devices are.
int BusOf(int device) { return device + 1; }

// Shows the size in the largest unit that divides it, and in bytes where none above KiB does.
std::string ShownSize(std::uint64_t bytes) {
  if (bytes % (std::uint64_t{1} << 30) == 0) return std::to_string(bytes >> 30) + "GiB";
  if (bytes % (std::uint64_t{1} << 20) == 0) return std::to_string(bytes >> 20) + "MiB";
  return std::to_string(bytes) + "B";
}

cudaDeviceProp PropertiesOf(int device) {
  const Card& card = State().cards[static_cast<std::size_t>(device)];
  const auto& silicon = *card.silicon;
  cudaDeviceProp prop = {};
  // The name says that the card is dry wherever it is printed or reported.
  std::snprintf(prop.name, sizeof prop.name, "Headroom dry card %s", ShownSize(card.total_bytes).c_str());
  std::snprintf(prop.uuid.bytes, sizeof prop.uuid.bytes, "dry card %d", device);
  prop.totalGlobalMem = card.total_bytes;
  prop.major = silicon.major;
  prop.minor = silicon.minor;
  prop.multiProcessorCount = silicon.multiprocessors;
  prop.maxThreadsPerMultiProcessor = silicon.threads_per_multiprocessor;
  prop.maxBlocksPerMultiProcessor = silicon.blocks_per_multiprocessor;
  prop.sharedMemPerMultiprocessor = silicon.shared_bytes_per_multiprocessor;
  prop.sharedMemPerBlockOptin = silicon.shared_bytes_per_block_optin;
  prop.l2CacheSize = static_cast<int>(silicon.l2_bytes);

  // The rest is the same for every capability from 7.5 on.
  prop.sharedMemPerBlock = std::size_t{48} << 10;
  prop.reservedSharedMemPerBlock = silicon.major >= 8 ? 1024 : 0;
  prop.regsPerBlock = 65536;
  prop.regsPerMultiprocessor = 65536;
  prop.warpSize = 32;
  prop.maxThreadsPerBlock = kThreadsPerBlock;
  prop.maxThreadsDim[0] = kThreadsPerBlock;
  prop.maxThreadsDim[1] = kThreadsPerBlock;
  prop.maxThreadsDim[2] = kBlockDepth;
  prop.maxGridSize[0] = kGridWidth;
  prop.maxGridSize[1] = kGridHeightAndDepth;
  prop.maxGridSize[2] = kGridHeightAndDepth;
  prop.totalConstMem = 65536;
  prop.memPitch = 2147483647;
  prop.textureAlignment = 512;
  prop.texturePitchAlignment = 32;
  prop.surfaceAlignment = 512;
  prop.memoryBusWidth = kMemoryBusBits;
  prop.concurrentKernels = 1;
  prop.asyncEngineCount = 3;
  prop.unifiedAddressing = 1;
  prop.canMapHostMemory = 1;
  prop.hostRegisterSupported = 1;
  prop.streamPrioritiesSupported = 1;
  prop.globalL1CacheSupported = 1;
  prop.localL1CacheSupported = 1;
  prop.computePreemptionSupported = 1;
  prop.cooperativeLaunch = 1;
  prop.clusterLaunch = silicon.major >= 9 ? 1 : 0;
  prop.canUseHostPointerForRegisteredMem = 1;
  prop.pciBusID = BusOf(device);
  prop.hostNumaId = -1;
  // Stay 0, since they promise calls that are refused: memory pools, managed memory, sharing between processes.
  prop.memoryPoolsSupported = 0;
  prop.managedMemory = 0;
  prop.ipcEventSupported = 0;
  return prop;
}

constexpr std::pair<cudaDeviceAttr, int cudaDeviceProp::*> kIntAttributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, &cudaDeviceProp::maxThreadsPerBlock},
    {cudaDevAttrWarpSize, &cudaDeviceProp::warpSize},
    {cudaDevAttrMaxRegistersPerBlock, &cudaDeviceProp::regsPerBlock},
    {cudaDevAttrMaxRegistersPerMultiprocessor, &cudaDeviceProp::regsPerMultiprocessor},
    {cudaDevAttrMultiProcessorCount, &cudaDeviceProp::multiProcessorCount},
    {cudaDevAttrMaxThreadsPerMultiProcessor, &cudaDeviceProp::maxThreadsPerMultiProcessor},
    {cudaDevAttrMaxBlocksPerMultiprocessor, &cudaDeviceProp::maxBlocksPerMultiProcessor},
    {cudaDevAttrL2CacheSize, &cudaDeviceProp::l2CacheSize},
    {cudaDevAttrComputeCapabilityMajor, &cudaDeviceProp::major},
    {cudaDevAttrComputeCapabilityMinor, &cudaDeviceProp::minor},
    {cudaDevAttrGlobalMemoryBusWidth, &cudaDeviceProp::memoryBusWidth},
    {cudaDevAttrConcurrentKernels, &cudaDeviceProp::concurrentKernels},
    {cudaDevAttrAsyncEngineCount, &cudaDeviceProp::asyncEngineCount},
    {cudaDevAttrUnifiedAddressing, &cudaDeviceProp::unifiedAddressing},
    {cudaDevAttrCanMapHostMemory, &cudaDeviceProp::canMapHostMemory},
    {cudaDevAttrHostRegisterSupported, &cudaDeviceProp::hostRegisterSupported},
    {cudaDevAttrStreamPrioritiesSupported, &cudaDeviceProp::streamPrioritiesSupported},
    {cudaDevAttrComputePreemptionSupported, &cudaDeviceProp::computePreemptionSupported},
    {cudaDevAttrCooperativeLaunch, &cudaDeviceProp::cooperativeLaunch},
    {cudaDevAttrClusterLaunch, &cudaDeviceProp::clusterLaunch},
    {cudaDevAttrCanUseHostPointerForRegisteredMem, &cudaDeviceProp::canUseHostPointerForRegisteredMem},
    {cudaDevAttrPciBusId, &cudaDeviceProp::pciBusID},
    {cudaDevAttrPciDeviceId, &cudaDeviceProp::pciDeviceID},
    {cudaDevAttrPciDomainId, &cudaDeviceProp::pciDomainID},
    {cudaDevAttrIntegrated, &cudaDeviceProp::integrated},
    {cudaDevAttrEccEnabled, &cudaDeviceProp::ECCEnabled},
    {cudaDevAttrManagedMemory, &cudaDeviceProp::managedMemory},
    {cudaDevAttrConcurrentManagedAccess, &cudaDeviceProp::concurrentManagedAccess},
    {cudaDevAttrPageableMemoryAccess, &cudaDeviceProp::pageableMemoryAccess},
    {cudaDevAttrMemoryPoolsSupported, &cudaDeviceProp::memoryPoolsSupported},
    {cudaDevAttrIpcEventSupport, &cudaDeviceProp::ipcEventSupported},
};

constexpr std::pair<cudaDeviceAttr, std::size_t cudaDeviceProp::*> kSizeAttributes[] = {
    {cudaDevAttrMaxSharedMemoryPerBlock, &cudaDeviceProp::sharedMemPerBlock},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, &cudaDeviceProp::sharedMemPerBlockOptin},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, &cudaDeviceProp::sharedMemPerMultiprocessor},
    {cudaDevAttrReservedSharedMemoryPerBlock, &cudaDeviceProp::reservedSharedMemPerBlock},
    {cudaDevAttrTotalConstantMemory, &cudaDeviceProp::totalConstMem},
};

// What the properties hold in arrays, or not at all.
constexpr std::pair<cudaDeviceAttr, int> kFixedAttributes[] = {
    {cudaDevAttrMaxBlockDimX, kThreadsPerBlock},      {cudaDevAttrMaxBlockDimY, kThreadsPerBlock},
    {cudaDevAttrMaxBlockDimZ, kBlockDepth},           {cudaDevAttrMaxGridDimX, kGridWidth},
    {cudaDevAttrMaxGridDimY, kGridHeightAndDepth},    {cudaDevAttrMaxGridDimZ, kGridHeightAndDepth},
    {cudaDevAttrClockRate, kClockKilohertz},          {cudaDevAttrMemoryClockRate, kMemoryClockKilohertz},
    {cudaDevAttrComputeMode, cudaComputeModeDefault}, {cudaDevAttrKernelExecTimeout, 0},
};

// Returns whether the attribute is known.
bool AttributeOf(const cudaDeviceProp& prop, cudaDeviceAttr wanted, int& value) {
  for (const auto& [attribute, member] : kIntAttributes) {
    if (attribute == wanted) return value = prop.*member, true;
  }
  for (const auto& [attribute, member] : kSizeAttributes) {
    if (attribute == wanted) return value = static_cast<int>(prop.*member), true;
  }
  for (const auto& [attribute, fixed] : kFixedAttributes) {
    if (attribute == wanted) return value = fixed, true;
  }
  return false;
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return Report(cudaErrorInvalidValue);
  *count = static_cast<int>(State().cards.size());
  return Report(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return Report(cudaErrorInvalidValue);
  *device = CurrentDevice();
  return Report(State().cards.empty() ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  if (!IsDevice(device)) return Report(State().cards.empty() ? cudaErrorNoDevice : cudaErrorInvalidDevice);
  SetCurrentDevice(device);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  if (prop == nullptr) return Report(cudaErrorInvalidValue);
  if (!IsDevice(device)) return Report(cudaErrorInvalidDevice);
  *prop = PropertiesOf(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (value == nullptr) return Report(cudaErrorInvalidValue);
  if (!IsDevice(device)) return Report(cudaErrorInvalidDevice);
  if (AttributeOf(PropertiesOf(device), attribute, *value)) return cudaSuccess;
  // A made-up number could steer a kernel's choice, so an attribute that nobody thought of is refused.
  NameRefusedCall(("cudaDeviceGetAttribute of attribute " + std::to_string(attribute)).c_str());
  return Report(cudaErrorNotSupported);
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (text == nullptr || length <= 0) return Report(cudaErrorInvalidValue);
  if (!IsDevice(device)) return Report(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", static_cast<unsigned>(BusOf(device)));
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = kLowestPriority;
  if (greatest != nullptr) *greatest = kHighestPriority;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (can == nullptr) return Report(cudaErrorInvalidValue);
  if (!IsDevice(device) || !IsDevice(peer)) return Report(cudaErrorInvalidDevice);
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int /*peer*/, unsigned int /*flags*/) { return Report(cudaErrorPeerAccessUnsupported); }

// Everything enqueued is done already, unless it was told to take longer.
cudaError_t cudaDeviceSynchronize() {
  if (State().cards.empty()) return Report(cudaErrorNoDevice);
  Synchronize();
  return Report(ContextError());
}

cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return Report(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaGetLastError() {
  const cudaError_t error = LastError();
  ClearLastError();
  return error;
}

cudaError_t cudaPeekAtLastError() { return LastError(); }
