// The concrete devices: libtorch on the CPU and on CUDA. Names no type of libtorch, so that who includes it need not be compiled
// with libtorch's headers.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <optional>

#include "base/bytes.h"
#include "runtime/device.h"

namespace headroom {

struct TorchOptions {
  // Threads that one run on the CPU uses. One by default: several workers of one thread each beat one worker of several, whose
  // threads wait for the slowest at every operation.
  int intra_op_threads = 1;
};

// Sets up libtorch for the process: the counting CPU allocator, the threads, no kernels compiled at run time. To be called once,
// before anything else here and before any tensor is made. INVALID_ARGUMENT for less than one thread.
absl::Status InitializeTorch(const TorchOptions& options);

// The CPU. `limit` is what all tensors of the process may hold together; it is enforced by the allocator.
absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(Bytes limit);

// Usable CUDA devices; 0 also where there is no driver.
int CudaDeviceCount();

// CUDA device `index`, of which the process' tensors may hold at most `limit` (the whole device by default).
// FAILED_PRECONDITION where no CUDA device is usable, INVALID_ARGUMENT where this one does not exist; both say what there is.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index, std::optional<Bytes> limit);

// True where the CUDA runtime is the dry one, on which kernels do nothing: memory is real, values and times mean nothing.
bool RunsDry();

}  // namespace headroom
