#include "runtime/torch/torch_device.h"

#include <ATen/Parallel.h>
#include <absl/strings/str_cat.h>
#include <dlfcn.h>
#include <torch/csrc/jit/codegen/fuser/interface.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include "runtime/torch/cpu_device.h"
#include "runtime/torch/cpu_memory.h"
#include "runtime/torch/torch_error.h"

namespace headroom {

absl::Status InitializeTorch(const TorchOptions& options) {
  if (options.intra_op_threads < 1) {
    return absl::InvalidArgumentError(absl::StrCat("intra-op threads must be at least 1, not ", options.intra_op_threads));
  }
  InstallCpuAllocator();
  const auto failure = CatchFailure([&] {
    at::set_num_threads(options.intra_op_threads);
    // May be set once in a process; a second call says so.
    if (at::get_num_interop_threads() != 1) at::set_num_interop_threads(1);
    // A fuser compiles kernels for every shape it meets, in the middle of serving, and needs a real driver for it.
    torch::jit::setTensorExprFuserEnabled(false);
    torch::jit::overrideCanFuseOnCPU(false);
    torch::jit::overrideCanFuseOnGPU(false);
    // The profiling executor runs the first batch to watch it and recompiles for the second, which is worth its time only to
    // fusers. Without it a frozen graph runs the same from the first batch on, in time and in memory.
    torch::jit::getProfilingMode() = false;
  });
  if (failure.has_value()) return absl::InternalError(failure->text);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(Bytes limit) {
  if (limit.count <= 0) return absl::InvalidArgumentError("cpu: the memory limit must be more than 0 bytes");
  LimitCpuMemory(limit);
  return std::make_unique<CpuDevice>();
}

bool RunsDry() {
  using Present = int (*)();
  const auto present = reinterpret_cast<Present>(dlsym(RTLD_DEFAULT, "headroom_dry_cuda_present"));
  return present != nullptr && present() != 0;
}

}  // namespace headroom
