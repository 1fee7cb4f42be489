// A device that tells a part only of its unusable memory: to find out how much of it a budget has to leave aside.
#pragma once

#include <memory>

#include "runtime/device.h"

namespace headroom {

// Thread-safe as `device` is. Memory().unusable is `discount` times what it is; all else is `device`'s own.
std::unique_ptr<Device> MakeDiscountedDevice(std::unique_ptr<Device> device, double discount);

}  // namespace headroom
