// The server around a device that fails on purpose: `headroom_faulty serve … --fault NAME=N`, repeatable.
#include "server/program.h"
#include "test/faulty/faulty_device.h"

int main(int argc, char** argv) {
  headroom::Faults faults;
  headroom::ProgramHooks hooks;
  hooks.extra_options.push_back({"--fault", "NAME=N", std::string("a fault to inject: ") + headroom::kFaultNames,
                                 [&](const std::string& value) { return faults.Read(value); }});
  hooks.wrap_device = [&](std::unique_ptr<headroom::Device> device) {
    return headroom::MakeFaultyDevice(std::move(device), faults);
  };
  hooks.when_ready = [&] { faults.Arm(); };
  return headroom::RunProgram(argc, argv, hooks);
}
