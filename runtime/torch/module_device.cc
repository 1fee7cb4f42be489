#include "runtime/torch/module_device.h"

#include <ATen/Parallel.h>
#include <absl/strings/str_cat.h>
#include <c10/core/InferenceMode.h>

#include <utility>

#include "base/log.h"

namespace headroom {

absl::StatusOr<std::shared_ptr<const TorchModule>> ModuleDevice::LoadModule(const std::filesystem::path& file,
                                                                            const ModelSpec& spec) {
  PrepareThread();
  const c10::InferenceMode inference;
  auto module = TorchModule::Load(file, spec, device_, [this] { ++loads_; });
  if (module.ok()) {
    Log(LogLevel::kInfo, "model loaded", {{"model", spec.name}, {"device", name_}, {"loads", loads_.load()}});
  }
  return module;
}

absl::StatusOr<std::shared_ptr<const LoadedModel>> ModuleDevice::Load(const std::filesystem::path& file, const ModelSpec& spec) {
  return MakeHere([&] { return LoadModule(file, spec); });
}

absl::StatusOr<std::shared_ptr<const LoadedModel>> ModuleDevice::Convert(const LoadedModel& model, Precision precision) {
  const auto* const module = dynamic_cast<const TorchModule*>(&model);
  if (module == nullptr || module->device() != device_) {
    return absl::InternalError(absl::StrCat("the model is not loaded on ", name_));
  }
  return MakeHere([&] {
    PrepareThread();
    const c10::InferenceMode inference;
    return module->Convert(precision, AutocastType());
  });
}

absl::Status ModuleDevice::DoesNotFit(std::optional<Bytes> wanted) const {
  const auto memory = Memory();
  if (!memory.ok()) return memory.status();
  const std::string needs =
      wanted.has_value() ? absl::StrCat("it needs at least ", ToString(*wanted), " of the ") : "it needs more than the ";
  return absl::ResourceExhaustedError(
      absl::StrCat("the model does not fit: ", needs, ToString(memory->free), " that are free on ", name_));
}

RunResult ModuleDevice::CheckAndRun(const LoadedModel& model, const PaddedBatch& batch, std::optional<Bytes> probe_limit) {
  const auto* const module = dynamic_cast<const TorchModule*>(&model);
  if (module == nullptr || module->device() != device_) {
    return ModelError{absl::StrCat("the model is not loaded on ", name_)};
  }
  if (batch.inputs.size() != module->input_count()) {
    return ModelError{absl::StrCat("the batch has ", batch.inputs.size(), " inputs, the model takes ", module->input_count())};
  }
  PrepareThread();
  return RunModule(*module, batch, probe_limit);
}

void PrepareThread() {
  // OpenMP keeps the number of threads for each thread that opens parallel regions. libtorch sets it at a thread's first
  // parallel loop of its own, which may come after MKL's or oneDNN's.
  thread_local const bool prepared = [] {
    at::init_num_threads();
    return true;
  }();
  static_cast<void>(prepared);
}

}  // namespace headroom
