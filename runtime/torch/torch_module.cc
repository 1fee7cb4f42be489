#include "runtime/torch/torch_module.h"

#include <absl/strings/str_cat.h>
#include <caffe2/serialize/inline_container.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/serialization/import.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "runtime/model_archive.h"
#include "runtime/torch/baked_device.h"
#include "runtime/torch/descriptor_reader.h"
#include "runtime/torch/forward_binding.h"
#include "runtime/torch/module_precision.h"
#include "runtime/torch/tensor_view.h"
#include "runtime/torch/torch_error.h"

namespace headroom {

struct TorchModule::Parts {
  torch::jit::Method forward;
  ForwardBinding binding;
  std::vector<bool> writes_input;  // in the order of ModelSpec::inputs
  ModelSpec spec;
  c10::ScalarType computes_in = c10::ScalarType::Float;  // of a converted module
  // The module before it was frozen, whose tensors are its own: what others are converted from. None in those, nor where none is.
  std::optional<torch::jit::Module> source;
};

namespace {

// Closes a file with its owner.
class OpenFile {
 public:
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

absl::Status StatusOf(const TorchFailure& failure, const char* what) {
  if (failure.out_of_memory) return absl::ResourceExhaustedError(failure.text);
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", failure.text));
}

// Compares what is stored compressed, as code is, with its checksums.
absl::Status CheckPacked(const std::shared_ptr<DescriptorReader>& file, const std::vector<PackedRecord>& records) {
  absl::Status checked = absl::OkStatus();
  const auto failure = CatchFailure([&] {
    caffe2::serialize::PyTorchStreamReader archive(file);
    for (const PackedRecord& record : records) {
      // libtorch knows records by their names inside the archive's one folder.
      const std::size_t folder = record.name.find('/');
      std::string unpacked(static_cast<std::size_t>(record.size.count), '\0');
      archive.getRecord(folder == std::string::npos ? record.name : record.name.substr(folder + 1), unpacked.data(),
                        unpacked.size());
      if (Crc32({reinterpret_cast<const unsigned char*>(unpacked.data()), unpacked.size()}) == record.crc) continue;
      checked = absl::InvalidArgumentError(
          "the model file is damaged: its code does not have its checksum; copy it again, or export it anew");
      return;
    }
  });
  return failure.has_value() ? StatusOf(*failure, "the model file is damaged or not a TorchScript module") : checked;
}

absl::StatusOr<torch::jit::Module> Read(const std::filesystem::path& file, c10::Device device,
                                        const std::function<void()>& before_load) {
  // Opened once: what is checked is what is loaded. Without waiting for the writer of a named pipe.
  const OpenFile open_file(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (open_file.descriptor() < 0) {
    return absl::InvalidArgumentError(errno == ENOENT ? "the model file is missing" : "the model file cannot be read");
  }
  struct stat status = {};
  if (fstat(open_file.descriptor(), &status) != 0) return absl::InvalidArgumentError("the model file cannot be read");
  if (!S_ISREG(status.st_mode)) return absl::InvalidArgumentError("the model file is missing");
  ASSIGN_OR_RETURN(const std::vector<PackedRecord> packed, CheckModelArchive(open_file.descriptor()));
  const auto reader = std::make_shared<DescriptorReader>(open_file.descriptor(), static_cast<std::size_t>(status.st_size));
  RETURN_IF_ERROR(CheckPacked(reader, packed));
  torch::jit::Module module;
  // A reader, not a name: so no path can come back in an error's text.
  const auto failure = CatchFailure([&] {
    before_load();
    module = torch::jit::load(reader, device);
  });
  if (failure.has_value()) return StatusOf(*failure, "the model file is damaged or not a TorchScript module");
  if (!module.find_method("forward").has_value()) return absl::InvalidArgumentError("the module has no method forward");
  return module;
}

// So many lines of the log are enough to see what was rewritten; a trace may name its device at every tensor.
constexpr std::size_t kMostRewritesTold = 10;

void TellRewritten(const std::vector<RewrittenDevice>& rewritten, const ModelSpec& spec, c10::Device device) {
  for (std::size_t i = 0; i < std::min(rewritten.size(), kMostRewritesTold); ++i) {
    Log(LogLevel::kWarning, "a device in the model's graph was rewritten",
        {{"model", spec.name},
         {"device", device.str()},
         {"was", rewritten[i].device},
         {"operation", rewritten[i].operation},
         {"place", rewritten[i].place},
         {"count", rewritten[i].count}});
  }
  if (rewritten.size() <= kMostRewritesTold) return;
  Log(LogLevel::kWarning, "more devices in the model's graph were rewritten",
      {{"model", spec.name}, {"device", device.str()}, {"lines", rewritten.size() - kMostRewritesTold}});
}

// Makes the graph run on `device`, or says why it cannot. A graph that names a GPU is taken to the CPU only where the configuration
// says that it is meant for it: whoever wrote the GPU down may count on its speed, or on half precision.
absl::Status SettleDevices(const torch::jit::Module& module, const ModelSpec& spec, c10::Device device) {
  if (!device.is_cpu() || spec.meant_for_cpu) {
    TellRewritten(RewriteBakedDevices(module, device), spec, device);
    return CheckBakedDevices(module, device);
  }
  const absl::Status settled = CheckBakedDevices(module, device);
  if (settled.ok()) return absl::OkStatus();
  return {settled.code(), absl::StrCat(std::string(settled.message()),
                                       "; instance_group { kind: KIND_CPU } in its configuration has it rewritten")};
}

// Constants folded, submodules inlined. A module that cannot be frozen (it changes its own attributes, say) runs as it is.
torch::jit::Module Frozen(const torch::jit::Module& module, const ModelSpec& spec) {
  torch::jit::Module frozen;
  const auto failure = CatchFailure([&] { frozen = torch::jit::freeze(module); });
  if (!failure.has_value()) return frozen;
  Log(LogLevel::kWarning, "model not frozen", {{"model", spec.name}, {"reason", failure->text}});
  return module;
}

std::vector<bool> WrittenInputs(const torch::jit::Method& forward, const ForwardBinding& binding) {
  const std::vector<std::size_t>& arguments = binding.argument_of_input();
  std::vector<bool> written(arguments.size(), true);
  CatchFailure([&] {
    const auto graph = forward.graph()->copy();
    const torch::jit::AliasDb aliases(graph);
    for (std::size_t i = 0; i < written.size(); ++i) {
      written[i] = aliases.hasWriters(graph->inputs()[arguments[i] + 1]);  // after self
    }
  });  // a graph that cannot be analysed may write to anything
  return written;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TorchModule>> TorchModule::Load(const std::filesystem::path& file, const ModelSpec& spec,
                                                                     c10::Device device, const std::function<void()>& before_load) {
  ASSIGN_OR_RETURN(torch::jit::Module module, Read(file, device, before_load));
  absl::StatusOr<std::shared_ptr<const TorchModule>> loaded = absl::InternalError("not loaded");
  const auto failure = CatchFailure([&] {
    loaded = [&]() -> absl::StatusOr<std::shared_ptr<const TorchModule>> {
      module.eval();
      ASSIGN_OR_RETURN(ForwardBinding binding, ForwardBinding::Make(module.get_method("forward").function().getSchema(), spec));
      RETURN_IF_ERROR(SettleDevices(module, spec, device));
      if (!spec.precision.converts()) {
        return Make(module, std::move(binding), spec, device, Precision::kFp32, c10::ScalarType::Float, std::nullopt);
      }
      const torch::jit::Module own = Rebuilt(module, device, std::nullopt);
      return Make(own, std::move(binding), spec, device, Precision::kFp32, c10::ScalarType::Float, std::move(module));
    }();
  });
  if (failure.has_value()) return StatusOf(*failure, "the module cannot be prepared");
  return loaded;
}

std::shared_ptr<const TorchModule> TorchModule::Make(const torch::jit::Module& module, ForwardBinding binding, ModelSpec spec,
                                                     c10::Device device, Precision precision, c10::ScalarType half,
                                                     std::optional<torch::jit::Module> source) {
  torch::jit::Module frozen = Frozen(module, spec);
  torch::jit::Method forward = frozen.get_method("forward");
  if (precision == Precision::kAutocast) ConvertAutocastWeights(forward, half);
  std::vector<bool> written = WrittenInputs(forward, binding);
  Parts parts{std::move(forward), std::move(binding), std::move(written), std::move(spec), half, std::move(source)};
  return std::shared_ptr<const TorchModule>(new TorchModule(device, precision, std::make_unique<const Parts>(std::move(parts))));
}

absl::StatusOr<std::shared_ptr<const TorchModule>> TorchModule::Convert(Precision precision, c10::ScalarType half) const {
  if (!parts_->source.has_value()) return absl::FailedPreconditionError("the module was not loaded to be converted");
  std::shared_ptr<const TorchModule> converted;
  const auto failure = CatchFailure([&] {
    const torch::jit::Module& source = *parts_->source;
    if (precision == Precision::kFp32) {
      Parts parts{parts_->forward, parts_->binding, parts_->writes_input, parts_->spec, parts_->computes_in, std::nullopt};
      converted.reset(new TorchModule(device_, precision, std::make_unique<const Parts>(std::move(parts))));
      return;
    }
    const bool autocast = precision == Precision::kAutocast;
    const c10::ScalarType type = autocast                        ? half
                                 : precision == Precision::kBf16 ? c10::ScalarType::BFloat16
                                                                 : c10::ScalarType::Half;
    // Before it is frozen: what freezing folds is then folded as it will run.
    const torch::jit::Module rebuilt = Rebuilt(source, device_, autocast ? std::nullopt : std::optional(type));
    converted = Make(rebuilt, parts_->binding, parts_->spec, device_, precision, type, std::nullopt);
  });
  if (failure.has_value()) return StatusOf(*failure, "the module cannot be converted");
  return converted;
}

TorchModule::TorchModule(c10::Device device, Precision precision, std::unique_ptr<const Parts> parts)
    : device_(device), precision_(precision), parts_(std::move(parts)) {}
TorchModule::~TorchModule() = default;

absl::StatusOr<std::vector<at::Tensor>> TorchModule::Forward(const std::vector<at::Tensor>& inputs) const {
  if (precision_ == Precision::kFp32) return parts_->binding.Outputs(parts_->forward(parts_->binding.Arguments(inputs)));
  absl::StatusOr<std::vector<at::Tensor>> outputs = absl::InternalError("not run");
  if (precision_ == Precision::kAutocast) {
    const AutocastScope autocast(device_.type(), parts_->computes_in);
    outputs = parts_->binding.Outputs(parts_->forward(parts_->binding.Arguments(inputs)));
  } else {
    std::vector<at::Tensor> converted;
    converted.reserve(inputs.size());
    for (const at::Tensor& input : inputs) {
      converted.push_back(input.is_floating_point() ? input.to(parts_->computes_in) : input);
    }
    outputs = parts_->binding.Outputs(parts_->forward(parts_->binding.Arguments(converted)));
  }
  if (!outputs.ok()) return outputs;
  for (std::size_t i = 0; i < outputs->size(); ++i) {
    const DataType declared = parts_->spec.outputs[i].type;
    at::Tensor& output = (*outputs)[i];
    if (output.is_floating_point() && IsFloatingPoint(declared)) output = output.to(ScalarTypeOf(declared));
  }
  return outputs;
}

std::size_t TorchModule::input_count() const { return parts_->writes_input.size(); }
bool TorchModule::writes_input(std::size_t index) const { return parts_->writes_input[index]; }

}  // namespace headroom
