// A device that loads TorchScript modules, runs padded batches, and tells its memory. The one seam between Headroom's
// own logic and libtorch; test fakes and the fault injector stand behind it too.
#pragma once

#include <absl/status/statusor.h>

#include <compare>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "runtime/model_spec.h"
#include "runtime/tensor.h"

namespace headroom {

// The shape of a batch as far as memory and time depend on it.
struct BatchShape {
  std::int64_t rows = 0;
  std::int64_t length = 0;  // padded; 0 for a model of fixed shapes

  friend auto operator<=>(const BatchShape&, const BatchShape&) = default;
};

// One batch, ready to run: an input for each of ModelSpec::inputs, in that order.
struct PaddedBatch {
  BatchShape shape;
  std::vector<HostTensor> inputs;
  // That the run may use on the CPU; 0: as many as the device has for each run. More take more memory: libtorch gives each a
  // buffer.
  int threads = 0;
};

// A module on a device. Made by Device::Load only; dropping the last reference frees the device's memory.
class LoadedModel {
 public:
  virtual ~LoadedModel() = default;
  virtual Precision precision() const { return Precision::kFp32; }
};

// What a run took. On a CUDA device a peak is known only where no other run overlapped it.
struct RunOutput {
  std::vector<HostTensor> outputs;  // one for each of ModelSpec::outputs, in that order; not yet checked
  // The most memory that the run held at once beyond what was there before it. From Run: bytes in tensors. From Probe: bytes
  // that the allocator took from the device, which is what a budget must count.
  std::optional<Bytes> peak;
  Duration compute{0};
  // The most bytes that tensors had asked for at once beyond those before it, from Run and Probe alike and whatever is cached: the
  // figure by which a run can be compared with a probe of its shape. Empty: as `peak`, which they are where nothing is cached.
  std::optional<Bytes> tensors = std::nullopt;

  std::optional<Bytes> tensor_peak() const { return tensors.has_value() ? tensors : peak; }
};

// The run did not get the memory it asked for; the device is well.
struct OutOfMemory {
  Bytes at_least{0};  // what the run would have held with the allocation that failed; more may have followed
};
// The module failed on this input; the device is well. `text` is for the log, not for a client.
struct ModelError {
  std::string text;
};
// The device's context is beyond repair: nothing will run on it in this process again.
struct DeviceLost {
  std::string text;
};

using RunResult = std::variant<RunOutput, OutOfMemory, ModelError, DeviceLost>;

// A snapshot; fragmentation may leave less than this for one large tensor.
struct DeviceMemory {
  Bytes total{0};      // what the process may use of the device
  Bytes free{0};       // what can still be taken from the device
  Bytes held{0};       // taken from the device by this process' allocator, in use or cached
  Bytes allocated{0};  // in tensors
  Bytes unusable{0};   // cached, but split around live memory
  Bytes peak_held{0};  // the most that was held at once since ResetPeak; on the CPU, where nothing is cached, allocated
};

enum class DeviceKind { kCpu, kCuda };

// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;

  // "cpu", "cuda:0": the value of the label `device`.
  virtual const std::string& name() const = 0;
  virtual DeviceKind kind() const = 0;
  // False on a dry card: outputs mean nothing, so that no check may compare them.
  virtual bool computes() const = 0;
  // Everything besides the model that measured memory and time depend on: hardware, driver, library, threads. One line.
  virtual std::string fingerprint() const = 0;

  // Loads the module in `file` for `spec`: frozen, in inference mode, its arguments bound by name. Called through ModelRegistry,
  // which makes sure that it happens once. INVALID_ARGUMENT: not a usable module (text names why, never a path).
  // RESOURCE_EXHAUSTED: the weights do not fit.
  virtual absl::StatusOr<std::shared_ptr<const LoadedModel>> Load(const std::filesystem::path& file, const ModelSpec& spec) = 0;
  // `model`, which Load made for a spec whose precision converts(), computing in `precision`. Both live side by side until one of
  // them is dropped; converted weights take memory of their own, kFp32 takes none. Floating inputs and outputs keep the types of
  // the configuration. Whether it runs is not known before it does. RESOURCE_EXHAUSTED: the converted weights do not fit beside.
  virtual absl::StatusOr<std::shared_ptr<const LoadedModel>> Convert(const LoadedModel& /*model*/, Precision /*precision*/) {
    return absl::UnimplementedError("this device has one precision");
  }
  // How often Load has handed a file to libtorch.
  virtual std::int64_t loads() const = 0;

  // Runs a batch on the calling thread (and its own stream) and waits for it. Never throws.
  virtual RunResult Run(const LoadedModel& model, const PaddedBatch& batch) = 0;

  // Runs like Run, but from an empty cache and held to `limit` bytes beyond what is in use; for calibration, when nothing
  // else runs on the device.
  virtual RunResult Probe(const LoadedModel& model, const PaddedBatch& batch, Bytes limit) = 0;

  // INTERNAL where the device does not answer; never a made-up zero.
  virtual absl::StatusOr<DeviceMemory> Memory() const = 0;
  virtual void ResetPeak() = 0;
  // Gives cached memory back to the device.
  virtual void EmptyCache() = 0;

  // The hard backstop: what the allocator may hold at most from now on. Where the device enforces Memory().total already, nothing.
  virtual void LimitHeld(Bytes limit) = 0;

  // Host memory from which a copy to the device is fast.
  virtual HostBuffer AllocateStaging(Bytes size) = 0;
};

}  // namespace headroom
