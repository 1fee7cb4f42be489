// Stands in for NVML, the library of a GPU's management, where a real one would contradict the dry cards.
//
// When memory runs out, libtorch looks up its card in NVML to say which processes use it, and asserts that it is found.
// On a machine with a real GPU, NVML would not know the dry card's address, and an assertion would take the place of
// the out-of-memory error. There is nothing else here: who looks for temperatures must find that there are none.

namespace {

enum Result : int { kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3 };

constexpr int kDriverVersion = 13000;

}  // namespace

extern "C" {

Result nvmlInit_v2() { return kSuccess; }

Result nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (version == nullptr) return kInvalidArgument;
  *version = kDriverVersion;
  return kSuccess;
}

Result nvmlDeviceGetHandleByPciBusId_v2(const char* /*bus*/, void** device) {
  static char any_device = 0;
  if (device == nullptr) return kInvalidArgument;
  *device = &any_device;
  return kSuccess;
}

// No process: a dry card is known to nobody, not even to the process that uses it.
Result nvmlDeviceGetComputeRunningProcesses(void* /*device*/, unsigned int* count, void* /*processes*/) {
  if (count == nullptr) return kInvalidArgument;
  *count = 0;
  return kSuccess;
}

// Cards are not linked to each other.
Result nvmlDeviceGetNvLinkRemoteDeviceType(void* /*device*/, unsigned int /*link*/, int* /*type*/) { return kNotSupported; }

Result nvmlDeviceGetNvLinkRemotePciInfo_v2(void* /*device*/, unsigned int /*link*/, void* /*bus*/) { return kNotSupported; }

Result nvmlDeviceGetGpuFabricInfoV(void* /*device*/, void* /*fabric*/) { return kNotSupported; }

}  // extern "C"
