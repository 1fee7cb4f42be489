// The calls of the CUDA runtime about streams, events and the state of capture.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>

#include "dry_state.h"
#include "stream_table.h"

using headroom::dry_cuda::ContextError;
using headroom::dry_cuda::CurrentDevice;
using headroom::dry_cuda::DeviceOfStream;
using headroom::dry_cuda::DryEvent;
using headroom::dry_cuda::DryStream;
using headroom::dry_cuda::Events;
using headroom::dry_cuda::IsDevice;
using headroom::dry_cuda::Report;
using headroom::dry_cuda::Streams;
using headroom::dry_cuda::Synchronize;

namespace {

cudaError_t CheckStream(cudaStream_t stream) {
  const std::optional<int> device = DeviceOfStream(stream);
  return Report(device.has_value() ? ContextError(*device) : cudaErrorInvalidResourceHandle);
}

cudaError_t CheckEvent(cudaEvent_t event) {
  const std::optional<DryEvent> found = Events().Find(event);
  return Report(found.has_value() ? ContextError(found->device) : cudaErrorInvalidResourceHandle);
}

}  // namespace

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  if (stream == nullptr) return Report(cudaErrorInvalidValue);
  if (!IsDevice(CurrentDevice())) return Report(cudaErrorNoDevice);
  if (const cudaError_t lost = ContextError(); lost != cudaSuccess) return Report(lost);
  int lowest = 0;
  int highest = 0;
  cudaDeviceGetStreamPriorityRange(&lowest, &highest);
  // Greater urgency is the smaller number, and a number out of range counts as the nearest in it.
  const int kept = std::clamp(priority, highest, lowest);
  *stream = Streams().Add(DryStream{.device = CurrentDevice(), .priority = kept, .flags = flags});
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return Report(Streams().Remove(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  if (priority == nullptr) return Report(cudaErrorInvalidValue);
  const auto found = Streams().Find(stream);
  *priority = found.has_value() ? found->priority : 0;
  return CheckStream(stream);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return CheckStream(stream); }

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Synchronize();
  return CheckStream(stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int /*flags*/) {
  const cudaError_t error = CheckStream(stream);
  return error == cudaSuccess ? CheckEvent(event) : error;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  if (event == nullptr) return Report(cudaErrorInvalidValue);
  if (!IsDevice(CurrentDevice())) return Report(cudaErrorNoDevice);
  if (const cudaError_t lost = ContextError(); lost != cudaSuccess) return Report(lost);
  const bool keeps_time = (flags & cudaEventDisableTiming) == 0;
  *event = Events().Add(DryEvent{.device = CurrentDevice(), .keeps_time = keeps_time, .recorded = std::nullopt});
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return Report(Events().Remove(event) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int /*flags*/) {
  std::optional<DryEvent> found = Events().Find(event);
  const std::optional<int> device = DeviceOfStream(stream);
  // An event can be recorded only on a stream of its own card.
  if (!found.has_value() || !device.has_value() || found->device != *device) {
    return Report(cudaErrorInvalidResourceHandle);
  }
  if (const cudaError_t lost = ContextError(*device); lost != cudaSuccess) return Report(lost);
  found->recorded = std::chrono::steady_clock::now();
  return Report(Events().Update(event, *found) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return CheckEvent(event); }

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Synchronize();
  return CheckEvent(event);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (milliseconds == nullptr) return Report(cudaErrorInvalidValue);
  const auto first = Events().Find(start);
  const auto last = Events().Find(end);
  if (!first.has_value() || !last.has_value() || !first->keeps_time || !last->keeps_time || !first->recorded.has_value() ||
      !last->recorded.has_value()) {
    return Report(cudaErrorInvalidResourceHandle);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(*last->recorded - *first->recorded).count();
  return cudaSuccess;
}

// No stream captures, as beginning to capture is refused.
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  if (status == nullptr) return Report(cudaErrorInvalidValue);
  *status = cudaStreamCaptureStatusNone;
  return CheckStream(stream);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                     std::size_t* dependency_count) {
  if (id != nullptr) *id = 0;
  if (graph != nullptr) *graph = nullptr;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (dependency_count != nullptr) *dependency_count = 0;
  return cudaStreamIsCapturing(stream, status);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
  if (mode == nullptr) return Report(cudaErrorInvalidValue);
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

// Work that was enqueued before is done, so the caller's function is due at once, on the caller's thread. On a GPU it
// runs on a thread of the runtime: a caller that holds a lock which the function takes is wrong there only by luck.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  if (function == nullptr) return Report(cudaErrorInvalidValue);
  const cudaError_t error = CheckStream(stream);
  if (error == cudaSuccess) function(argument);
  return error;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* argument, unsigned int /*flags*/) {
  if (function == nullptr) return Report(cudaErrorInvalidValue);
  const cudaError_t error = CheckStream(stream);
  if (error == cudaSuccess) function(stream, cudaSuccess, argument);
  return error;
}
