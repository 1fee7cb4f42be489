// Out of memory at every allocation of a run in turn.
#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "runtime/torch/torch_device.h"
#include "test/runtime/torch/refusing_allocator.h"
#include "test/runtime/torch/scripted_model.h"

namespace headroom {
namespace {

constexpr const char* kPlain = "def forward(self, x):\n    return ((x + x) * x).sin() + torch.ones_like(x)\n";

// Two layers of an encoder of width 64 with 4 heads over x, ids of one row: embedding, attention, normalisation, feed-forward.
constexpr const char* kEncoder = R"(
def layer(self, h):
    n = h.size(0)
    q = torch.matmul(h, self.q.view([64, 64])).view([n, 4, 16]).transpose(0, 1)
    k = torch.matmul(h, self.k.view([64, 64])).view([n, 4, 16]).transpose(0, 1)
    v = torch.matmul(h, self.v.view([64, 64])).view([n, 4, 16]).transpose(0, 1)
    scores = torch.softmax(torch.matmul(q, k.transpose(1, 2)) * 0.25, -1)
    mixed = torch.matmul(scores, v).transpose(0, 1).reshape([n, 64])
    h = torch.layer_norm(h + mixed, [64], self.gain, self.bias)
    wide = torch.gelu(torch.linear(h, self.up.view([256, 64])))
    return torch.layer_norm(h + torch.linear(wide, self.down.view([64, 256])), [64], self.gain, self.bias)
def forward(self, x):
    h = torch.embedding(self.table.view([1000, 64]), x.to(4))
    h = self.layer(self.layer(h))
    pooled = h.mean([0])
    return pooled / pooled.norm()
)";
const Weights kEncoderWeights = {{"table", 64000}, {"q", 4096},  {"k", 4096},   {"v", 4096},
                                 {"gain", 64},     {"bias", 64}, {"up", 16384}, {"down", 16384}};

struct Case {
  const char* name;
  const char* source;
  Weights weights;
  std::int64_t elements;
  std::int64_t many;  // elements whose tensors need segments of their own
};
const std::vector<Case> kCases = {{"plain", kPlain, {}, 1000, 3'000'000}, {"encoder", kEncoder, kEncoderWeights, 100, 1000}};

TEST_CASE("an allocation that is refused is out of memory wherever it is, and leaves nothing behind", "[every_allocation]") {
  const auto device = CpuWithLimit();
  InstallRefusingAllocator();
  for (const Case& c : kCases) {
    INFO(c.name);
    const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), c.source, c.weights);
    const PaddedBatch batch = OnesOf(c.elements);
    const std::vector<float> right = FloatsOf(Succeed(device->Run(*model, batch)).outputs[0]);
    const Bytes at_rest = device->Memory()->allocated;
    std::int64_t nth = 0;
    while (true) {
      INFO("allocation " << nth + 1);
      RefuseAllocation(++nth);
      RunResult result = device->Run(*model, batch);
      const bool untouched = AllocationsRefused() == 0;
      RefuseAllocation(0);
      if (untouched) {
        CHECK(FloatsOf(Succeed(std::move(result)).outputs[0]) == right);
        break;
      }
      REQUIRE(std::holds_alternative<OutOfMemory>(result));
      REQUIRE(device->Memory()->allocated == at_rest);
      REQUIRE(FloatsOf(Succeed(device->Run(*model, batch)).outputs[0]) == right);
      REQUIRE(device->Memory()->allocated == at_rest);
    }
    CHECK(nth > (c.weights.empty() ? 3 : 20));
  }
}

TEST_CASE("a load that is refused an allocation is refused for memory, wherever it is", "[every_allocation]") {
  const auto device = CpuWithLimit();
  InstallRefusingAllocator();
  const TemporaryFolder folder;
  const auto file = SaveModule(folder, kEncoder, kEncoderWeights);
  const Bytes at_rest = device->Memory()->allocated;
  std::int64_t nth = 0;
  while (true) {
    INFO("allocation " << nth + 1);
    RefuseAllocation(++nth);
    auto model = device->Load(file, SpecOf({"x"}, {"y"}));
    const bool untouched = AllocationsRefused() == 0;
    RefuseAllocation(0);
    if (untouched) {
      REQUIRE(model.ok());
      break;
    }
    // Freezing is a luxury: a module that there is no memory to freeze for runs as it is.
    if (!model.ok()) CHECK(absl::IsResourceExhausted(model.status()));
    model = absl::UnknownError("dropped");
    REQUIRE(device->Memory()->allocated == at_rest);
  }
  CHECK(nth > static_cast<std::int64_t>(kEncoderWeights.size()));
}

TEST_CASE("cuda: a cudaMalloc that fails is out of memory wherever it is, and leaves nothing behind", "[dry]") {
  CpuWithLimit();
  using SetFaults = int (*)(const char*);
  const auto set_faults = reinterpret_cast<SetFaults>(dlsym(RTLD_DEFAULT, "headroom_dry_cuda_set_faults"));
  if (set_faults == nullptr || CudaDeviceCount() == 0) {
    WARN("skipped: only a dry card can be told to fail; run it under headroom_dry");
    return;
  }
  const auto device = *MakeCudaDevice(0, std::nullopt);
  for (const Case& c : kCases) {
    INFO(c.name);
    const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), c.source, c.weights);
    const PaddedBatch batch = OnesOf(c.many);
    const std::vector<std::int64_t> right = Succeed(device->Run(*model, batch)).outputs[0].shape;
    device->EmptyCache();
    const Bytes at_rest = device->Memory()->allocated;
    int refused = 0;
    for (int nth = 1;; ++nth) {
      INFO("cudaMalloc " << nth);
      // From the n-th on, so that libtorch's own next attempts fail too.
      REQUIRE(set_faults(("malloc_fails_at=" + std::to_string(nth) + " malloc_failures=1000000").c_str()) == 0);
      RunResult result = device->Run(*model, batch);
      REQUIRE(set_faults("") == 0);
      if (std::holds_alternative<RunOutput>(result)) break;
      ++refused;
      REQUIRE(std::holds_alternative<OutOfMemory>(result));
      REQUIRE(device->Memory()->allocated == at_rest);
      REQUIRE(Succeed(device->Run(*model, batch)).outputs[0].shape == right);
      device->EmptyCache();
      REQUIRE(device->Memory()->allocated == at_rest);
    }
    CHECK(refused >= 1);
    // A single failure is not even noticed: libtorch empties its cache and asks again.
    Succeed(device->Run(*model, batch));
    REQUIRE(set_faults("malloc_fails_at=1") == 0);
    Succeed(device->Run(*model, OnesOf(c.many * 2)));
    REQUIRE(set_faults("") == 0);
    device->EmptyCache();
  }
}

}  // namespace
}  // namespace headroom
