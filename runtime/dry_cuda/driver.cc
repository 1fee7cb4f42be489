// The few calls of the CUDA driver that libtorch looks up in libcuda.so.1 by itself: whether a card's context exists,
// so that asking for a device does not create one on card 0, and the text of an error. Calls that are not here are
// errors there.
#include <cuda.h>

CUresult cuInit(unsigned int /*flags*/) { return CUDA_SUCCESS; }

CUresult cuDevicePrimaryCtxGetState(CUdevice /*device*/, unsigned int* flags, int* active) {
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = 0;
  // Without contexts there is none that could be created by mistake.
  *active = 1;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  // Only compared with null by those who ask.
  static char any_context = 0;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = reinterpret_cast<CUcontext>(&any_context);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = error == CUDA_SUCCESS ? "no error" : "not supported on a dry card";
  return CUDA_SUCCESS;
}

// NVRTC, the run-time compiler, asks for the driver's private tables and believes that a driver without this call has
// them.
CUresult cuGetExportTable(const void** table, const CUuuid* /*id*/) {
  if (table != nullptr) *table = nullptr;
  return CUDA_ERROR_NOT_SUPPORTED;
}
