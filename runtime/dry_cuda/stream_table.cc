#include "stream_table.h"

#include "dry_state.h"

namespace headroom::dry_cuda {

HandleTable<DryStream, cudaStream_t>& Streams() {
  static auto* streams = new HandleTable<DryStream, cudaStream_t>;
  return *streams;
}

HandleTable<DryEvent, cudaEvent_t>& Events() {
  static auto* events = new HandleTable<DryEvent, cudaEvent_t>;
  return *events;
}

std::optional<int> DeviceOfStream(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return CurrentDevice();
  const std::optional<DryStream> found = Streams().Find(stream);
  if (!found.has_value()) return std::nullopt;
  return found->device;
}

}  // namespace headroom::dry_cuda
