#include "server/device_set.h"

#include <catch2/catch.hpp>
#include <string>

namespace headroom {
namespace {

TEST_CASE("the CPU is a device with a budget, held to the memory limit", "[device_set]") {
  ModelOptions options;
  options.device.kind = DeviceSelection::Kind::kCpu;
  options.memory_limit = MiB(64);
  options.memory_fraction = 0.5;
  const Device* wrapped = nullptr;
  const auto devices = MakeDevices(options, [&](std::unique_ptr<Device> device) {
    wrapped = device.get();
    return device;
  });
  REQUIRE(devices.ok());
  REQUIRE(devices->size() == 1);
  const ServingDevice& cpu = *devices->front();
  CHECK(cpu.device.get() == wrapped);
  CHECK(cpu.device->name() == "cpu");
  CHECK(cpu.device->kind() == DeviceKind::kCpu);
  REQUIRE(cpu.budget->MarkAtRest().ok());
  CHECK(cpu.device->Memory()->total == MiB(64));
  CHECK(cpu.budget->idle_budget() <= MiB(32));
  CHECK(cpu.budget->idle_budget() > MiB(31));
}

TEST_CASE("a card that is not there is named as the option names it", "[device_set]") {
  ModelOptions options;
  options.device = ParseDeviceSelection("cuda:63").value();
  const auto devices = MakeDevices(options, nullptr);
  REQUIRE_FALSE(devices.ok());
  CHECK(std::string(devices.status().message()).rfind("--device cuda:63: ", 0) == 0);
}

}  // namespace
}  // namespace headroom
