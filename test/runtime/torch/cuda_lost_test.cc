// A CUDA device whose context is poisoned. For good, so that these tests have a process of their own and are hidden from others:
// headroom_dry --card 640MiB,640MiB -- … "[lost]"
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#pragma push_macro("CHECK")
#undef CHECK
#include <ATen/ops/ones.h>
#pragma pop_macro("CHECK")

#include <catch2/catch.hpp>
#include <string>

#include "runtime/torch/torch_device.h"
#include "runtime/torch/torch_error.h"
#include "test/runtime/torch/scripted_model.h"

namespace headroom {
namespace {

void SetFaults(const char* faults) {
  using Set = int (*)(const char*);
  const auto set = reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "headroom_dry_cuda_set_faults"));
  REQUIRE(set != nullptr);
  REQUIRE(set(faults) == 0);
}

std::unique_ptr<Device> Cuda(int index) {
  CpuWithLimit();
  REQUIRE(CudaDeviceCount() > index);
  return *MakeCudaDevice(index, std::nullopt);
}

TEST_CASE("a run that trips an assertion loses the device, and everything after it says so", "[.][lost]") {
  const auto device = Cuda(0);
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  {
    const PaddedBatch batch = StagedOnes(*device, 1000);
    const RunOutput before = Succeed(device->Run(*model, batch));
    SetFaults("lost_after_launches=0");
    const RunResult lost = device->Run(*model, batch);
    REQUIRE(std::holds_alternative<DeviceLost>(lost));
    CHECK(std::get<DeviceLost>(lost).text.find("device-side assert triggered") == 0);
    CHECK(std::holds_alternative<DeviceLost>(device->Run(*model, batch)));
    CHECK(std::holds_alternative<DeviceLost>(device->Probe(*model, batch, MiB(100))));
  }  // staging and outputs are given back, which throws nothing
  CHECK(absl::IsInternal(device->Memory().status()));
  CHECK(device->AllocateStaging(MiB(1)) != nullptr);
  device->EmptyCache();
  device->ResetPeak();
  device->LimitHeld(MiB(100));
  const TemporaryFolder folder;
  const auto reloaded = device->Load(SaveModule(folder, kTwoTensors), SpecOf({"x"}, {"y"}));
  REQUIRE_FALSE(reloaded.ok());
  CHECK(absl::IsInternal(reloaded.status()));
  CHECK(std::string(reloaded.status().message()).find("the device was lost while loading") == 0);
}

TEST_CASE("without a run, the device is found to be lost when it is asked for its memory", "[.][lost]") {
  SetFaults("");
  // The other card's error is still this thread's last one.
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  static_cast<void>(cudaGetLastError());
  const auto device = Cuda(1);
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  const PaddedBatch batch = StagedOnes(*device, 1000);
  Succeed(device->Run(*model, batch));
  REQUIRE(device->Memory().ok());

  SetFaults("memory_query_fails_after=0");
  CHECK(absl::IsInternal(device->Memory().status()));
  SetFaults("");
  CHECK(device->Memory().ok());
  Succeed(device->Run(*model, batch));  // a question that is not answered is not yet a lost device

  SetFaults("lost_after_launches=0");
  CHECK(CatchFailure([] { at::ones({10}, at::TensorOptions().device("cuda:1")); }).has_value());
  const absl::Status lost = device->Memory().status();
  CHECK(absl::IsInternal(lost));
  CHECK(std::string(lost.message()).find("device-side assert triggered") != std::string::npos);
  const RunResult after = device->Run(*model, batch);
  REQUIRE(std::holds_alternative<DeviceLost>(after));
  CHECK(std::get<DeviceLost>(after).text == "cuda:1 was lost before");
}

}  // namespace
}  // namespace headroom
