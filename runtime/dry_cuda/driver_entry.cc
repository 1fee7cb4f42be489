// How the runtime hands out functions of the driver, and how it refuses calls.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string_view>

#include "dry_state.h"

using headroom::dry_cuda::NameRefusedCall;
using headroom::dry_cuda::Report;

namespace headroom::dry_cuda {

int RefuseCall(const char* call) {
  NameRefusedCall(call);
  return Report(cudaErrorNotSupported);
}

}  // namespace headroom::dry_cuda

namespace {

CUresult ErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = error == CUDA_SUCCESS ? "no error" : "not supported on a dry card";
  return CUDA_SUCCESS;
}

CUresult RefuseDriverCall() {
  NameRefusedCall("a call of the CUDA driver (expandable segments, multicast, green contexts)");
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

// libtorch looks up every driver call that it may ever need as soon as it needs one, and asserts that they exist: also
// when it is about to report that memory ran out and finds NVML. So each name gets a function, which refuses when it is
// called.
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int /*version*/,
                                             unsigned long long /*flags*/, cudaDriverEntryPointQueryResult* result) {
  if (symbol == nullptr || function == nullptr) return Report(cudaErrorInvalidValue);
  const bool is_error_string = std::string_view(symbol) == "cuGetErrorString";
  *function = is_error_string ? reinterpret_cast<void*>(ErrorString) : reinterpret_cast<void*>(RefuseDriverCall);
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
