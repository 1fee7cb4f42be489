// The server around a device that fails on purpose: `headroom_faulty serve … --fault NAME=N`, repeatable.
#include "server/program.h"
#include "test/faulty/faulty_device.h"
#include "test/faulty/host_allocation.h"

int main(int argc, char** argv) {
  headroom::Faults faults;
  headroom::ProgramHooks hooks;
  hooks.extra_options.push_back(
      {"--fault", "NAME=N", std::string("a fault to inject: ") + headroom::kFaultNames + ", " + headroom::kHostAllocationFaultName,
       [&](const std::string& value) {
         const auto host = headroom::ReadHostAllocationFault(value);
         return host ? *host : faults.Read(value);
       }});
  hooks.wrap_device = [&](std::unique_ptr<headroom::Device> device) {
    return headroom::MakeFaultyDevice(std::move(device), faults);
  };
  hooks.when_ready = [&] {
    faults.Arm();
    headroom::ArmHostAllocationFault();
  };
  return headroom::RunProgram(argc, argv, hooks);
}
