#include "runtime/torch/cuda_device.h"

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <absl/strings/str_cat.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/version.h>

#include <map>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/sync.h"
#include "runtime/torch/cuda_allocator.h"
#include "runtime/torch/tensor_view.h"
#include "runtime/torch/torch_device.h"
#include "runtime/torch/torch_error.h"

namespace headroom {
namespace {

// Streams whose threads have ended. A stream that has been used has memory: a cuBLAS workspace, never given back, and cached blocks
// that no other stream can use. So threads that come and go, as those that load models may, take the streams of those before them.
class IdleStreams {
 public:
  static IdleStreams& Instance() {
    // Never destroyed: threads end after it would be.
    static auto* const instance = new IdleStreams;
    return *instance;
  }

  c10::cuda::CUDAStream Take(c10::DeviceIndex index) EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      std::vector<c10::cuda::CUDAStream>& idle = idle_[index];
      if (!idle.empty()) {
        const c10::cuda::CUDAStream stream = idle.back();
        idle.pop_back();
        return stream;
      }
    }
    return c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index);
  }
  void GiveBack(c10::DeviceIndex index, c10::cuda::CUDAStream stream) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    idle_[index].push_back(stream);
  }

 private:
  Mutex mutex_;
  std::map<c10::DeviceIndex, std::vector<c10::cuda::CUDAStream>> idle_ GUARDED_BY(mutex_);
};

struct ThreadStreams {
  ThreadStreams() = default;
  ThreadStreams(const ThreadStreams&) = delete;
  ThreadStreams& operator=(const ThreadStreams&) = delete;
  ~ThreadStreams() {
    for (const auto& [index, stream] : by_device) IdleStreams::Instance().GiveBack(index, stream);
  }
  std::map<c10::DeviceIndex, c10::cuda::CUDAStream> by_device;
};

// The calling thread's own stream on the device, so that workers do not wait for each other's kernels. The allocator caches freed
// blocks for each stream apart.
c10::cuda::CUDAStream WorkerStream(c10::DeviceIndex index) {
  thread_local ThreadStreams streams;
  auto found = streams.by_device.find(index);
  if (found == streams.by_device.end()) found = streams.by_device.emplace(index, IdleStreams::Instance().Take(index)).first;
  return found->second;
}

void ObserveOutOfMemoryOnce() {
  static const bool observed = [] {
    c10::cuda::CUDACachingAllocator::attachOutOfMemoryObserver(
        [](std::int64_t device, std::size_t wanted, std::size_t, std::size_t) { CudaMemoryScope::OnOutOfMemory(device, wanted); });
    return true;
  }();
  static_cast<void>(observed);
}

// libtorch asks the device whether copies from or to the memory are over, which throws once the device is lost; out of a destructor
// that would end the process, with requests unanswered. The memory then stays taken.
void GiveBackStaging(c10::DataPtr& pinned) {
  const c10::DeleterFnPtr give_back = pinned.get_deleter();
  void* const context = pinned.release_context();
  CatchFailure([&] { give_back(context); });
}

// "13.0" of 13000.
std::string VersionText(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

absl::Status NoDevice(cudaError_t error) {
  int driver = 0;
  const bool known = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
  const std::string version = known ? VersionText(driver) : std::string("none found");
  return absl::FailedPreconditionError(absl::StrCat("cuda: no CUDA device is usable on this machine (driver: ", version, "; ",
                                                    error == cudaSuccess ? "it has no device" : cudaGetErrorString(error),
                                                    "); use --device cpu"));
}

}  // namespace

struct CudaDevice::Properties {
  std::string name;
  int major = 0;
  int minor = 0;
  int driver = 0;
  int runtime = 0;
  Bytes total{0};
  std::string allocator;

  std::string Fingerprint(bool dry) const {
    return absl::StrCat("libtorch ", TORCH_VERSION, ", ", dry ? "dry " : "", "cuda ", VersionText(runtime), ", driver ",
                        VersionText(driver), ", ", name, ", sm_", major, minor, ", ", total.count, " bytes", allocator);
  }
};

int CudaDeviceCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index, std::optional<Bytes> limit) {
  return CudaDevice::Make(index, limit);
}

absl::StatusOr<std::unique_ptr<Device>> CudaDevice::Make(int index, std::optional<Bytes> limit) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) return NoDevice(error);
  if (index < 0 || index >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("cuda:", index, ": there is no such device; this machine has ", count, " (cuda:0 to cuda:", count - 1, ")"));
  }
  if (limit.has_value() && limit->count <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("cuda:", index, ": the memory limit must be more than 0 bytes"));
  }
  std::unique_ptr<Device> device;
  absl::Status counts;
  const auto failure = CatchFailure([&] {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    ObserveOutOfMemoryOnce();
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
    cudaDeviceProp read{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&read, index));
    Properties properties;
    properties.name = read.name;
    properties.major = read.major;
    properties.minor = read.minor;
    C10_CUDA_CHECK(cudaDriverGetVersion(&properties.driver));
    C10_CUDA_CHECK(cudaRuntimeGetVersion(&properties.runtime));
    std::size_t free = 0;
    std::size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    properties.total = {static_cast<std::int64_t>(total)};
    properties.allocator = ChooseCudaAllocator(RunsDry()).Fingerprint();
    counts = CheckAllocatorCounts(index);
    if (!counts.ok()) return;
    device.reset(new CudaDevice(index, properties, limit));
  });
  if (failure.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("cuda:", index, " cannot be used: ", failure->text));
  }
  if (!counts.ok()) return absl::Status(counts.code(), absl::StrCat("cuda:", index, ": ", std::string(counts.message())));
  return device;
}

CudaDevice::CudaDevice(int index, const Properties& properties, std::optional<Bytes> limit)
    : ModuleDevice(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index))),
      dry_(RunsDry()),
      fingerprint_(properties.Fingerprint(dry_)),
      memory_(index, properties.total, limit) {}

c10::ScalarType CudaDevice::AutocastType() const {
  int major = 0;
  const bool known = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device().index()) == cudaSuccess;
  return known && major >= 8 ? c10::ScalarType::BFloat16 : c10::ScalarType::Half;
}

absl::StatusOr<std::shared_ptr<const LoadedModel>> CudaDevice::MakeHere(const MakeModule& make) {
  absl::StatusOr<std::shared_ptr<const TorchModule>> module = absl::InternalError("not loaded");
  std::optional<Bytes> refused;
  const auto failure = CatchFailure([&] {
    const c10::cuda::CUDAGuard guard(device().index());
    const CudaMemoryScope scope(memory_, std::nullopt);
    module = make();
    refused = scope.refused();
    // Copies were queued on this thread's current stream; workers read the weights on theirs.
    c10::cuda::getCurrentCUDAStream().synchronize();
  });
  if (module.ok() && !failure.has_value()) return *std::move(module);
  const absl::Status status = failure.has_value() ? absl::InternalError(failure->text) : module.status();
  module = status;
  if (const auto loss = FindLoss()) return absl::InternalError(absl::StrCat("the device was lost while loading: ", *loss));
  memory_.EmptyCache();
  return refused.has_value() || absl::IsResourceExhausted(status) ? DoesNotFit(refused) : status;
}

absl::StatusOr<DeviceMemory> CudaDevice::Memory() const {
  if (lost_) return absl::InternalError(absl::StrCat(name(), " is lost"));
  auto memory = memory_.Read();
  // Why it does not answer matters: what is lost for good must not be asked again.
  if (!memory.ok()) static_cast<void>(FindLoss());
  return memory;
}

HostBuffer CudaDevice::AllocateStaging(Bytes size) {
  c10::DataPtr pinned;
  const auto failure = CatchFailure([&] {
    const c10::cuda::CUDAGuard guard(device().index());
    pinned = at::getHostAllocator(at::kCUDA)->allocate(static_cast<std::size_t>(size.count));
  });
  if (failure.has_value() || pinned.get() == nullptr) return AllocateHost(size);
  auto* const memory = static_cast<std::byte*>(pinned.get());
  // A std::function must be copyable, a DataPtr is not.
  return {memory, [owner = std::make_shared<c10::DataPtr>(std::move(pinned))](std::byte*) { GiveBackStaging(*owner); }};
}

HostTensor CudaDevice::StartCopyToHost(const at::Tensor& tensor) {
  HostTensor host{.type = DataTypeOf(tensor.scalar_type()).value(), .shape = tensor.sizes().vec(), .data = nullptr};
  host.data = AllocateStaging(host.size());
  ViewOf(host).copy_(tensor, /*non_blocking=*/true);
  return host;
}

absl::StatusOr<std::vector<HostTensor>> CudaDevice::Compute(const TorchModule& module, const PaddedBatch& batch) {
  const c10::InferenceMode inference;
  const c10::cuda::CUDAStream stream = WorkerStream(device().index());
  const c10::cuda::CUDAStreamGuard guard(stream);  // sets the device too
  std::vector<at::Tensor> inputs;
  for (const HostTensor& input : batch.inputs) inputs.push_back(ViewOf(input).to(device(), /*non_blocking=*/true));
  ASSIGN_OR_RETURN(const std::vector<at::Tensor> results, module.Forward(inputs));
  std::vector<HostTensor> outputs;
  for (const at::Tensor& result : results) outputs.push_back(StartCopyToHost(result.contiguous()));
  stream.synchronize();
  return outputs;
}

RunResult CudaDevice::RunModule(const TorchModule& module, const PaddedBatch& batch, std::optional<Bytes> probe_limit) {
  if (lost_) return DeviceLost{absl::StrCat(name(), " was lost before")};
  const CudaMemoryScope scope(memory_, probe_limit);
  const TimePoint start = RealClock().Now();
  absl::StatusOr<std::vector<HostTensor>> outputs = absl::InternalError("not run");
  const auto failure = CatchFailure([&] { outputs = Compute(module, batch); });
  if (failure.has_value()) return Explain(*failure, scope.refused());
  if (!outputs.ok()) return Explain({.text = std::string(outputs.status().message())}, std::nullopt);
  RunOutput output{.outputs = *std::move(outputs), .peak = std::nullopt, .compute = RealClock().Now() - start};
  if (const auto peaks = scope.peaks()) {
    output.peak = probe_limit.has_value() ? peaks->held : peaks->allocated;
    output.tensors = peaks->requested;
  }
  return output;
}

RunResult CudaDevice::Explain(const TorchFailure& failure, std::optional<Bytes> refused) {
  // The stream must be idle in any case: copies may still read the batch's memory.
  if (const auto loss = FindLoss()) return DeviceLost{absl::StrCat(*loss, " (", failure.text, ")")};
  if (refused.has_value() || failure.out_of_memory) return OutOfMemory{refused.value_or(Bytes{0})};
  return ModelError{failure.text};
}

std::optional<std::string> CudaDevice::FindLoss() const {
  cudaError_t error = cudaSuccess;
  const auto failure = CatchFailure([&] {
    const c10::cuda::CUDAGuard guard(device().index());
    // An error of one call is forgotten once read; one that poisons the context comes back with every call.
    static_cast<void>(cudaGetLastError());
    error = cudaStreamSynchronize(WorkerStream(device().index()).stream());
  });
  if (!failure.has_value() && (error == cudaSuccess || error == cudaErrorMemoryAllocation)) return std::nullopt;
  lost_ = true;
  return failure.has_value() ? failure->text : std::string(cudaGetErrorString(error));
}

}  // namespace headroom
