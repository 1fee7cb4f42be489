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

TEST_CASE("runs may be spread over the processors, within what the options say", "[device_set]") {
  struct Case {
    int least, most, processors, limit;
  };
  for (const Case& c : {Case{1, 0, 1, 1}, Case{1, 0, 2, 2}, Case{1, 0, 64, 8}, Case{2, 0, 4, 4}, Case{16, 0, 64, 16},
                        Case{1, 1, 64, 1}, Case{1, 12, 64, 12}, Case{4, 2, 64, 4}}) {
    CAPTURE(c.least, c.most, c.processors);
    ModelOptions options;
    options.intra_op_threads = c.least;
    options.max_intra_op_threads = c.most;
    const ThreadLimits limits = ThreadLimitsOf(options, c.processors);
    CHECK(limits.processors == c.processors);
    CHECK(limits.least == c.least);
    CHECK(limits.most == c.limit);
  }
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
