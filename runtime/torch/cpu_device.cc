#include "runtime/torch/cpu_device.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <absl/strings/str_cat.h>
#include <c10/core/InferenceMode.h>
#include <torch/version.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/status_macros.h"
#include "runtime/torch/cpu_memory.h"
#include "runtime/torch/run_threads.h"
#include "runtime/torch/tensor_view.h"
#include "runtime/torch/torch_error.h"

namespace headroom {
namespace {

// "AMD EPYC 7B13"; calibrated times are this processor's.
std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  }
  return "unknown processor";
}

absl::StatusOr<std::vector<HostTensor>> Compute(const TorchModule& module, const PaddedBatch& batch) {
  const c10::InferenceMode inference;
  std::vector<at::Tensor> inputs;
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    at::Tensor view = ViewOf(batch.inputs[i]);
    inputs.push_back(module.writes_input(i) ? view.clone() : std::move(view));
  }
  ASSIGN_OR_RETURN(std::vector<at::Tensor> results, module.Forward(inputs));
  std::vector<HostTensor> outputs;
  for (at::Tensor& result : results) outputs.push_back(ToHostTensor(std::exchange(result, at::Tensor())));
  return outputs;
}

}  // namespace

CpuDevice::CpuDevice() : ModuleDevice(c10::Device(c10::kCPU)) {}

std::string CpuDevice::fingerprint() const {
  return absl::StrCat("libtorch ", TORCH_VERSION, ", cpu ", at::get_cpu_capability(), ", ", ProcessorName(), ", ",
                      at::get_num_threads(), " threads a run");
}

absl::StatusOr<std::shared_ptr<const LoadedModel>> CpuDevice::MakeHere(const MakeModule& make) {
  const CpuMemoryScope scope;
  auto module = make();
  if (module.ok()) return *std::move(module);
  if (scope.refused().has_value() || absl::IsResourceExhausted(module.status())) return DoesNotFit(scope.refused());
  return module.status();
}

RunResult CpuDevice::RunModule(const TorchModule& module, const PaddedBatch& batch, std::optional<Bytes> probe_limit) {
  const CpuMemoryScope scope(probe_limit);
  const RunThreads threads(batch.threads);
  const TimePoint start = RealClock().Now();
  absl::StatusOr<std::vector<HostTensor>> outputs = absl::InternalError("not run");
  const auto failure = CatchFailure([&] { outputs = Compute(module, batch); });
  if (failure.has_value()) {
    if (scope.refused().has_value() || failure->out_of_memory) return OutOfMemory{scope.refused().value_or(Bytes{0})};
    return ModelError{failure->text};
  }
  if (!outputs.ok()) return ModelError{std::string(outputs.status().message())};
  return RunOutput{.outputs = *std::move(outputs), .peak = scope.peak(), .compute = RealClock().Now() - start};
}

absl::StatusOr<DeviceMemory> CpuDevice::Memory() const {
  const CpuMemory memory = ReadCpuMemory();
  return DeviceMemory{.total = memory.limit,
                      .free = std::max(Bytes{0}, memory.limit - memory.allocated),
                      .held = memory.allocated,
                      .allocated = memory.allocated,
                      .unusable = {0},
                      .peak_held = memory.peak};
}

void CpuDevice::ResetPeak() { ResetCpuPeak(); }

}  // namespace headroom
