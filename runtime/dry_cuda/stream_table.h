// The streams and events that are alive. They order nothing, as every call is over when it returns; they are kept so
// that a handle that was destroyed, or that belongs to another card, is an error here as it is on a GPU.
#ifndef HEADROOM_RUNTIME_DRY_CUDA_STREAM_TABLE_H_
#define HEADROOM_RUNTIME_DRY_CUDA_STREAM_TABLE_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace headroom::dry_cuda {

struct DryStream {
  int device;
  int priority;
  unsigned int flags;
};

struct DryEvent {
  int device;
  bool keeps_time;
  std::optional<std::chrono::steady_clock::time_point> recorded;
};

// Live objects by their handle, which is their address. Thread-safe.
template <typename Object, typename Handle>
class HandleTable {
 public:
  Handle Add(Object object) {
    auto owned = std::make_unique<Object>(std::move(object));
    const auto handle = reinterpret_cast<Handle>(owned.get());
    const std::lock_guard<std::mutex> lock(mu_);
    objects_.emplace(handle, std::move(owned));
    return handle;
  }

  bool Remove(Handle handle) {
    const std::lock_guard<std::mutex> lock(mu_);
    return objects_.erase(handle) != 0;
  }

  std::optional<Object> Find(Handle handle) const {
    const std::lock_guard<std::mutex> lock(mu_);
    const auto it = objects_.find(handle);
    if (it == objects_.end()) return std::nullopt;
    return *it->second;
  }

  // Replaces the object; returns false when the handle is not alive.
  bool Update(Handle handle, const Object& object) {
    const std::lock_guard<std::mutex> lock(mu_);
    const auto it = objects_.find(handle);
    if (it == objects_.end()) return false;
    *it->second = object;
    return true;
  }

 private:
  mutable std::mutex mu_;
  std::unordered_map<Handle, std::unique_ptr<Object>> objects_;  // Guarded by mu_.
};

// Never destroyed: libtorch destroys events while the process ends.
HandleTable<DryStream, cudaStream_t>& Streams();
HandleTable<DryEvent, cudaEvent_t>& Events();

// The device on which work for `stream` would run; nothing when the handle is not alive. The default streams, which
// have no handle of their own, are those of the current device.
std::optional<int> DeviceOfStream(cudaStream_t stream);

}  // namespace headroom::dry_cuda

#endif  // HEADROOM_RUNTIME_DRY_CUDA_STREAM_TABLE_H_
