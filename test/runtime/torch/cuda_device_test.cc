// The CUDA device: memory, errors and threads, never values. Made for a dry card (headroom_dry --card 640MiB,1GiB -- … "[dry]"),
// right on a real one too; without a CUDA device each test says so and checks nothing.
#include <dlfcn.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "runtime/torch/torch_device.h"
#include "test/runtime/torch/scripted_model.h"

namespace headroom {
namespace {

constexpr std::int64_t kMega = 1 << 20;  // elements: 4 MiB

// Null, with a warning, where there is no such device.
std::unique_ptr<Device> Cuda(int index = 0, std::optional<Bytes> limit = std::nullopt) {
  CpuWithLimit();
  if (CudaDeviceCount() <= index) {
    WARN("skipped: this test needs " << index + 1 << " CUDA device(s); run it under headroom_dry");
    return nullptr;
  }
  auto device = MakeCudaDevice(index, limit);
  INFO(device.status().ToString());
  REQUIRE(device.ok());
  (*device)->EmptyCache();
  return *std::move(device);
}

TEST_CASE("cuda: a run gives outputs of the right shape and the peak of bytes in tensors", "[dry]") {
  const auto device = Cuda();
  if (device == nullptr) return;
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  for (int i = 0; i < 3; ++i) {
    const RunOutput output = Succeed(device->Run(*model, StagedOnes(*device, kMega)));
    REQUIRE(output.outputs.size() == 1);
    CHECK(output.outputs[0].shape == std::vector<std::int64_t>{kMega});
    // The input, x + x, and the product: 3 × 4 MiB.
    CHECK(output.peak == MiB(12));
  }
  CHECK(device->name() == "cuda:0");
  CHECK(device->kind() == DeviceKind::kCuda);
  CHECK(device->computes() == !RunsDry());
  CHECK((device->fingerprint().find("dry cuda") != std::string::npos) == RunsDry());
}

TEST_CASE("cuda: memory tells total, held, allocated and the peak since the last reset", "[dry]") {
  const auto device = Cuda();
  if (device == nullptr) return;
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  const DeviceMemory before = *device->Memory();
  device->ResetPeak();
  Succeed(device->Run(*model, StagedOnes(*device, 4 * kMega)));  // three tensors of 16 MiB
  const DeviceMemory after = *device->Memory();
  CHECK(after.allocated == before.allocated);
  CHECK(after.held - before.held == MiB(48));
  CHECK(before.free - after.free == MiB(48));
  CHECK(after.peak_held == after.held);
  device->EmptyCache();
  CHECK(device->Memory()->held == before.held);
  CHECK(device->Memory()->peak_held == after.held);
  device->ResetPeak();
  CHECK(device->Memory()->peak_held == before.held);
  // Runs reset the allocator's own peaks; what was held at once before them is not forgotten.
  Succeed(device->Run(*model, StagedOnes(*device, 4 * kMega)));
  device->EmptyCache();
  Succeed(device->Run(*model, StagedOnes(*device, 1000)));
  CHECK(device->Memory()->peak_held - before.held == MiB(48));
}

TEST_CASE("cuda: a probe measures the growth of held memory from an empty cache, held to its limit", "[dry]") {
  const auto device = Cuda();
  if (device == nullptr) return;
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  const PaddedBatch batch = StagedOnes(*device, 5 * kMega / 2);  // tensors of 10 MiB, held in steps of 2 MiB
  Succeed(device->Run(*model, batch));                           // fills the cache, which a probe must not profit from
  const Bytes growth = Succeed(device->Probe(*model, batch, MiB(200))).peak.value();
  CHECK(growth == MiB(30));
  CHECK(Succeed(device->Probe(*model, batch, growth)).peak == growth);
  const RunResult refused = device->Probe(*model, batch, growth - Bytes{1});
  REQUIRE(std::holds_alternative<OutOfMemory>(refused));
  CHECK(std::get<OutOfMemory>(refused).at_least == MiB(30));
  // The probe's limit ends with it.
  Succeed(device->Run(*model, StagedOnes(*device, 8 * kMega)));
}

TEST_CASE("cuda: a run and a probe of one shape tell the same bytes in tensors, whatever is cached", "[dry]") {
  const auto device = Cuda();
  if (device == nullptr) return;
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  for (const std::int64_t elements : {std::int64_t{100}, kMega / 3, kMega, 5 * kMega / 2}) {
    const PaddedBatch batch = StagedOnes(*device, elements);
    const Bytes expected{3 * elements * 4};
    const RunOutput probed = Succeed(device->Probe(*model, batch, MiB(200)));
    CHECK(probed.tensor_peak() == expected);
    for (const std::int64_t before : {10 * kMega, elements, std::int64_t{1000}}) {
      Succeed(device->Run(*model, StagedOnes(*device, before)));  // leaves blocks of another size in the cache
      const RunOutput run = Succeed(device->Run(*model, batch));
      CHECK(run.tensor_peak() == expected);
      CHECK(run.peak.value() >= expected);
    }
  }
}

TEST_CASE("cuda: a thread's workspace is memory at rest after its first run, and no part of a batch", "[dry]") {
  const auto device = Cuda(1);  // the other tests need what this one leaves taken
  if (device == nullptr) return;
  const char* const source = "def forward(self, x):\n    return torch.matmul(x.view([-1, 64]), self.w.view([64, 64])).view([-1])\n";
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), source, {{"w", 4096}});
  const PaddedBatch batch = StagedOnes(*device, kMega);
  Succeed(device->Run(*model, batch));
  const Bytes calibrated = Succeed(device->Probe(*model, batch, MiB(200))).tensors.value();

  const auto allocated = [&] { return device->Memory()->allocated; };
  std::vector<Bytes> at_rest;
  std::vector<Bytes> taken;
  for (int thread = 0; thread < 40; ++thread) {
    std::thread([&] {
      Succeed(device->Run(*model, batch));
      at_rest.push_back(allocated());
      taken.push_back(Succeed(device->Run(*model, batch)).tensors.value());
      CHECK(allocated() == at_rest.back());
    }).join();
  }
  // A worker's batches take what was calibrated on another thread.
  CHECK(taken == std::vector<Bytes>(40, calibrated));
  // Threads that follow each other share one stream, and so one workspace.
  CHECK(at_rest == std::vector<Bytes>(40, at_rest.front()));
}

TEST_CASE("cuda: out of memory is typed, leaves nothing behind, and the next run works", "[dry]") {
  const auto device = Cuda();
  if (device == nullptr) return;
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  device->EmptyCache();
  const DeviceMemory before = *device->Memory();
  // The whole card three times over.
  const std::int64_t elements = before.total.count / 4 / 2;
  if (before.total > GiB(2)) {
    WARN("skipped: the card is too large for this test's input; run it under headroom_dry --card 640MiB");
    return;
  }
  const RunResult result = device->Run(*model, OnesOf(elements));
  REQUIRE(std::holds_alternative<OutOfMemory>(result));
  CHECK(std::get<OutOfMemory>(result).at_least > before.total - MiB(4));
  device->EmptyCache();
  CHECK(device->Memory()->held == before.held);
  Succeed(device->Run(*model, StagedOnes(*device, kMega)));
}

TEST_CASE("cuda: memory that others took is not free, and running into it is out of memory", "[dry]") {
  const auto device = Cuda();
  if (device == nullptr) return;
  using SetHeldByOthers = int (*)(int, std::uint64_t);
  const auto set_held_by_others = reinterpret_cast<SetHeldByOthers>(dlsym(RTLD_DEFAULT, "headroom_dry_cuda_set_held_by_others"));
  if (set_held_by_others == nullptr) {
    WARN("skipped: only a dry card can be told what others hold");
    return;
  }
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  const PaddedBatch batch = StagedOnes(*device, 4 * kMega);  // takes 48 MiB
  device->EmptyCache();
  const DeviceMemory alone = *device->Memory();
  REQUIRE(set_held_by_others(0, static_cast<std::uint64_t>((alone.free - MiB(40)).count)) == 0);
  CHECK(device->Memory()->free == MiB(40));
  CHECK(device->Memory()->total == alone.total);
  const RunResult result = device->Run(*model, batch);
  REQUIRE(std::holds_alternative<OutOfMemory>(result));
  CHECK(std::get<OutOfMemory>(result).at_least == MiB(48));
  REQUIRE(set_held_by_others(0, 0) == 0);
  Succeed(device->Run(*model, batch));
}

TEST_CASE("cuda: LimitHeld is a hard bound on held memory", "[dry]") {
  const auto device = Cuda();
  if (device == nullptr) return;
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  device->EmptyCache();
  const DeviceMemory rest = *device->Memory();
  const PaddedBatch batch = StagedOnes(*device, 4 * kMega);
  device->LimitHeld(rest.held + MiB(48));
  Succeed(device->Run(*model, batch));
  device->EmptyCache();
  device->LimitHeld(rest.held + MiB(48) - Bytes{1});
  CHECK(std::holds_alternative<OutOfMemory>(device->Run(*model, batch)));
  device->LimitHeld(rest.total);
  Succeed(device->Run(*model, batch));
}

TEST_CASE("cuda: the process' own limit caps total and free, and is enforced", "[dry]") {
  const auto device = Cuda(0, MiB(40));
  if (device == nullptr) return;
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  device->EmptyCache();
  CHECK(device->Memory()->total == MiB(40));
  CHECK(device->Memory()->free == MiB(40) - device->Memory()->held);
  device->LimitHeld(GiB(1));  // cannot lift the cap
  CHECK(std::holds_alternative<OutOfMemory>(device->Run(*model, StagedOnes(*device, 4 * kMega))));
  Succeed(device->Run(*model, StagedOnes(*device, kMega)));
  REQUIRE(Cuda() != nullptr);  // gives the whole card back to the other tests
}

TEST_CASE("cuda: a model whose weights do not fit is refused, saying how much", "[dry]") {
  const auto device = Cuda(0, MiB(40));
  if (device == nullptr) return;
  const TemporaryFolder folder;
  const auto file = SaveModule(folder, "def forward(self, x):\n    return (x * self.w).sum().view([1])\n", {{"w", 16 * kMega}});
  const auto model = device->Load(file, SpecOf({"x"}, {"y"}));
  REQUIRE_FALSE(model.ok());
  CHECK(absl::IsResourceExhausted(model.status()));
  CHECK(std::string(model.status().message()).find("the model does not fit: it needs at least 64.00 MiB of the ") == 0);
  REQUIRE(Cuda() != nullptr);
}

TEST_CASE("cuda: what the module throws is a model error, and the device stays well", "[dry]") {
  const auto device = Cuda();
  if (device == nullptr) return;
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), "def forward(self, x):\n    return x.view([7])\n");
  const RunResult result = device->Run(*model, StagedOnes(*device, 6));
  REQUIRE(std::holds_alternative<ModelError>(result));
  CHECK(std::get<ModelError>(result).text == "RuntimeError: shape '[7]' is invalid for input of size 6");
  Succeed(device->Run(*model, StagedOnes(*device, 7)));
}

TEST_CASE("cuda: a device that a trace on the CPU has written down is rewritten", "[dry]") {
  const auto device = Cuda();
  if (device == nullptr) return;
  for (const char* const body :
       {"    return x + torch.ones([1], device='cpu')\n", "    return x.cpu() * 2\n",
        "    return x.to('cpu') * torch.ones([1], device='cuda:7')\n", "    return x.to(torch.device('cpu')).cpu()\n",
        "    return x + torch.ones([1], device='cuda')\n"}) {
    INFO(body);
    const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), std::string("def forward(self, x):\n") + body);
    // All of it happens on the card: what x becomes takes memory there.
    const RunOutput output = Succeed(device->Run(*model, StagedOnes(*device, kMega)));
    CHECK(output.outputs[0].shape == std::vector<std::int64_t>{kMega});
    CHECK(output.tensor_peak().value() >= MiB(4));
  }
}

TEST_CASE("cuda: the lengths of packed sequences stay on the host", "[dry]") {
  const auto device = Cuda();
  if (device == nullptr) return;
  const char* const source =
      "def forward(self, x):\n    lengths = torch.full([1], x.size(0), dtype=4, device=x.device)\n"
      "    packed, sizes = torch._pack_padded_sequence(x.view([1, x.size(0), 1]), lengths.to('cpu'), True)\n"
      "    return packed.view([-1]).cpu()\n";
  // Lengths are values that a dry card does not compute: it loads, and the run gets as far as reading them.
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), source);
  const RunResult result = device->Run(*model, StagedOnes(*device, 100));
  if (const auto* error = std::get_if<ModelError>(&result)) CHECK(error->text.find("CPU") == std::string::npos);
}

TEST_CASE("cuda: two devices hold a model each", "[dry]") {
  const auto first = Cuda(0);
  const auto second = first == nullptr ? nullptr : Cuda(1);
  if (second == nullptr) return;
  const ModelSpec spec = SpecOf({"x"}, {"y"});
  const char* const source = "def forward(self, x):\n    return (x * self.w).sum().view([1])\n";
  const Bytes first_before = first->Memory()->allocated;
  const Bytes second_before = second->Memory()->allocated;
  const auto on_first = LoadSource(*first, spec, source, {{"w", kMega}});
  const auto on_second = LoadSource(*second, spec, source, {{"w", kMega}});
  CHECK(first->Memory()->allocated - first_before == MiB(4));
  CHECK(second->Memory()->allocated - second_before == MiB(4));
  CHECK(first->loads() == 1);
  CHECK(second->loads() == 1);
  Succeed(first->Run(*on_first, StagedOnes(*first, kMega)));
  Succeed(second->Run(*on_second, StagedOnes(*second, kMega)));
  CHECK(std::holds_alternative<ModelError>(first->Run(*on_second, StagedOnes(*first, kMega))));
}

TEST_CASE("cuda: workers run at once, and a peak is told only where a run was alone", "[dry]") {
  const auto device = Cuda();
  if (device == nullptr) return;
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  std::atomic<int> done{0};
  std::atomic<int> wrong_peaks{0};
  std::vector<std::thread> workers;
  for (int worker = 0; worker < 4; ++worker) {
    workers.emplace_back([&] {
      const PaddedBatch batch = StagedOnes(*device, kMega);
      for (int i = 0; i < 20; ++i) {
        const RunResult result = device->Run(*model, batch);
        const auto* const output = std::get_if<RunOutput>(&result);
        if (output == nullptr) continue;
        ++done;
        if (output->peak.has_value() && *output->peak != MiB(12)) ++wrong_peaks;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  CHECK(done == 80);
  CHECK(wrong_peaks == 0);
  CHECK(Succeed(device->Run(*model, StagedOnes(*device, kMega))).peak == MiB(12));
}

TEST_CASE("cuda: a model in half precision holds half of its weights, once the other is gone", "[dry]") {
  const auto device = Cuda();
  if (device == nullptr) return;
  const Bytes before = device->Memory()->allocated;
  ModelSpec spec = SpecOf({"x"}, {"y"});
  spec.precision.wanted = Precision::kBf16;
  for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp32}) {
    CAPTURE(NameOf(precision));
    auto own = LoadSource(*device, spec, "def forward(self, x):\n    return x + self.w[0]\n", {{"w", 4 * kMega}});
    const auto converted = device->Convert(*own, precision);
    INFO(converted.status().ToString());
    REQUIRE(converted.ok());
    CHECK(device->Memory()->allocated - before >= MiB(precision == Precision::kFp32 ? 16 : 24));
    const RunOutput output = Succeed(device->Run(**converted, StagedOnes(*device, kMega)));
    CHECK(output.outputs[0].type == DataType::kFp32);
    own.reset();
    // On a dry card what freezing makes of the weights may be folded into less; it is never more.
    CHECK(device->Memory()->allocated - before <= MiB(precision == Precision::kFp32 ? 16 : 8) + KiB(64));
  }
}

}  // namespace
}  // namespace headroom
