#include "bench/discounted_device.h"

#include <utility>

#include "base/status_macros.h"
#include "runtime/wrapped_device.h"

namespace headroom {
namespace {

class DiscountedDevice final : public WrappedDevice {
 public:
  DiscountedDevice(std::unique_ptr<Device> device, double discount) : WrappedDevice(std::move(device)), discount_(discount) {}

  absl::StatusOr<DeviceMemory> Memory() const override {
    ASSIGN_OR_RETURN(DeviceMemory memory, WrappedDevice::Memory());
    memory.unusable = {static_cast<std::int64_t>(discount_ * static_cast<double>(memory.unusable.count))};
    return memory;
  }

 private:
  const double discount_;
};

}  // namespace

std::unique_ptr<Device> MakeDiscountedDevice(std::unique_ptr<Device> device, double discount) {
  return std::make_unique<DiscountedDevice>(std::move(device), discount);
}

}  // namespace headroom
