// The server around a device that fails on purpose: `headroom_faulty serve … --fault NAME=N`, repeatable.
#include "server/program.h"
#include "test/faulty/faulty_device.h"
#include "test/faulty/host_allocation.h"
#include "test/runtime/torch/refusing_allocator.h"

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
    if (faults.oom_at_allocation() > 0) headroom::InstallRefusingAllocator();
    return headroom::MakeFaultyDevice(std::move(device), faults);
  };
  hooks.when_ready = [&] {
    faults.Arm();
    headroom::ArmHostAllocationFault();
    if (faults.oom_at_allocation() > 0) headroom::RefuseAllocation(faults.oom_at_allocation(), /*repeat=*/true);
  };
  return headroom::RunProgram(argc, argv, hooks);
}
