#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "runtime/torch/torch_device.h"
#include "test/runtime/torch/scripted_model.h"

namespace headroom {
namespace {

using Values = std::vector<float>;

TEST_CASE("a run gives the module's values and its peak", "[cpu_device]") {
  const auto device = CpuWithLimit();
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  const RunOutput output = Succeed(device->Run(*model, BatchOf({{1, 2, 3}})));
  REQUIRE(output.outputs.size() == 1);
  CHECK(output.outputs[0].shape == std::vector<std::int64_t>{3});
  CHECK(FloatsOf(output.outputs[0]) == Values{2, 8, 18});
  CHECK(output.peak == Bytes{1024});
  CHECK(output.compute > Duration{0});
}

TEST_CASE("the first run of a shape takes what later runs take", "[cpu_device]") {
  const auto device = CpuWithLimit();
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  for (const std::int64_t elements : {1000, 1000, 1000, 5000, 5000, 5000}) {
    const Bytes expected{2 * ((elements * 4 + 511) / 512 * 512)};
    CHECK(Succeed(device->Run(*model, OnesOf(elements))).peak == expected);
  }
}

TEST_CASE("a run passes with exactly its peak and runs out of memory one block below it", "[cpu_device]") {
  const auto device = CpuWithLimit();
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  const PaddedBatch batch = OnesOf(100'000);
  const Bytes peak = Succeed(device->Run(*model, batch)).peak.value();
  const Bytes at_rest = device->Memory()->allocated;

  CpuWithLimit(at_rest + peak);
  Succeed(device->Run(*model, batch));
  CpuWithLimit(at_rest + peak - Bytes{512});
  const RunResult result = device->Run(*model, batch);
  REQUIRE(std::holds_alternative<OutOfMemory>(result));
  CHECK(std::get<OutOfMemory>(result).at_least == peak);
  CHECK(device->Memory()->allocated == at_rest);
  CHECK(FloatsOf(Succeed(device->Run(*model, OnesOf(10))).outputs[0]) == Values(10, 2.0F));
  CHECK(device->Memory()->allocated == at_rest);
  CpuWithLimit();
}

TEST_CASE("a probe is held to its own limit", "[cpu_device]") {
  const auto device = CpuWithLimit();
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  const PaddedBatch batch = OnesOf(1024);
  const RunOutput probed = Succeed(device->Probe(*model, batch, Bytes{8192}));
  CHECK(probed.peak == Bytes{8192});
  CHECK(probed.tensor_peak() == probed.peak);
  const RunResult result = device->Probe(*model, batch, Bytes{8191});
  REQUIRE(std::holds_alternative<OutOfMemory>(result));
  CHECK(std::get<OutOfMemory>(result).at_least == Bytes{8192});
  Succeed(device->Run(*model, batch));
}

TEST_CASE("an output stays counted until it is freed, on whichever thread", "[cpu_device]") {
  const auto device = CpuWithLimit();
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  const Bytes at_rest = device->Memory()->allocated;
  RunOutput output = Succeed(device->Run(*model, OnesOf(1024)));
  CHECK(device->Memory()->allocated - at_rest == Bytes{4096});
  std::thread([outputs = std::move(output.outputs)]() mutable { outputs.clear(); }).join();
  CHECK(device->Memory()->allocated == at_rest);
}

TEST_CASE("an output never shares memory with an input or a weight", "[cpu_device]") {
  const auto device = CpuWithLimit();
  const auto model =
      LoadSource(*device, SpecOf({"x"}, {"a", "b", "c"}), "def forward(self, x):\n    return (x, x[1:], self.w)\n", {{"w", 3}});
  const PaddedBatch batch = BatchOf({{1, 2, 3}});
  RunOutput first = Succeed(device->Run(*model, batch));
  for (HostTensor& output : first.outputs) std::fill(output.bytes().begin(), output.bytes().end(), std::byte{0xFF});
  const RunOutput second = Succeed(device->Run(*model, batch));
  CHECK(FloatsOf(second.outputs[0]) == Values{1, 2, 3});
  CHECK(FloatsOf(second.outputs[1]) == Values{2, 3});
  CHECK(FloatsOf(second.outputs[2]) == Values{1, 1, 1});
}

TEST_CASE("a module that writes to its input does not change the batch", "[cpu_device]") {
  const auto device = CpuWithLimit();
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), "def forward(self, x):\n    return x.add_(1)\n");
  const PaddedBatch batch = BatchOf({{1, 2}});
  for (int i = 0; i < 2; ++i) CHECK(FloatsOf(Succeed(device->Run(*model, batch)).outputs[0]) == Values{2, 3});
  CHECK(FloatsOf(batch.inputs[0]) == Values{1, 2});
}

TEST_CASE("inputs bind by name, or in order where they are called NAME__0", "[cpu_device][binding]") {
  const auto device = CpuWithLimit();
  const char* const source = "def forward(self, a, b, scale: float = 2.0):\n    return a - b * scale\n";
  for (const auto& [inputs, expected] : std::vector<std::pair<std::vector<std::string>, float>>{
           {{"a", "b"}, -10}, {{"b", "a"}, 5}, {{"in__0", "in__1"}, -10}, {{"in__1", "in__0"}, 5}}) {
    const auto model = LoadSource(*device, SpecOf(inputs, {"y"}), source);
    // The first input is 10 × 1, the second 10: a - 2b is -10 or 10 - … by who is who.
    CHECK(FloatsOf(Succeed(device->Run(*model, BatchOf({{5}, {7.5F}}))).outputs[0]) ==
          Values{expected == -10 ? 5 - 15.0F : 7.5F - 10.0F});
  }
}

TEST_CASE("an input or argument that is left over is named", "[cpu_device][binding]") {
  const auto device = CpuWithLimit();
  const char* const source = "def forward(self, ids, mask):\n    return ids + mask\n";
  struct Case {
    std::vector<std::string> inputs;
    std::string text;
  };
  for (const Case& c :
       std::vector<Case>{{{"ids"}, "argument 'mask' of the module's forward(ids, mask) has no input in the configuration"},
                         {{"ids", "mask", "kind"}, "input 'kind' is not an argument of the module's forward(ids, mask)"},
                         {{"in__0", "in__2"}, "input 'in__2' is beyond the arguments of the module's forward(ids, mask)"},
                         {{"in__0", "is__0"}, "input 'in__0' has the number of another input"}}) {
    const absl::Status status = RefusalOf(*device, SpecOf(c.inputs, {"y"}), source);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(std::string(status.message()) == c.text);
  }
  const absl::Status status = RefusalOf(*device, SpecOf({"x", "n"}, {"y"}), "def forward(self, x, n: int):\n    return x + n\n");
  CHECK(std::string(status.message()) == "input 'n': argument 'n' of the module's forward is of type int, not a tensor");
}

TEST_CASE("outputs bind from a tuple, a list and a dict", "[cpu_device][binding]") {
  const auto device = CpuWithLimit();
  struct Case {
    std::string result;
    std::vector<std::string> outputs;
    std::vector<Values> values;
  };
  for (const Case& c : std::vector<Case>{
           {"x, x + 1", {"a", "b"}, {{1}, {2}}},
           {"[x, x + 1]", {"a", "b"}, {{1}, {2}}},
           {"{'a': x, 'b': x + 1}", {"b", "a"}, {{2}, {1}}},
           {"{'a': x, 'b': x + 1, 'rest': x}", {"b"}, {{2}}},
           {"{'a': x, 'b': x + 1}", {"first", "second"}, {{1}, {2}}},
           {"x, x + 1, x + 2", {"out__2", "out__0"}, {{3}, {1}}},
       }) {
    INFO(c.result);
    const auto model = LoadSource(*device, SpecOf({"x"}, c.outputs), "def forward(self, x):\n    return " + c.result + "\n");
    const RunOutput output = Succeed(device->Run(*model, BatchOf({{1}})));
    REQUIRE(output.outputs.size() == c.values.size());
    for (std::size_t i = 0; i < c.values.size(); ++i) CHECK(FloatsOf(output.outputs[i]) == c.values[i]);
  }
}

TEST_CASE("an output that does not bind is a model error that names it", "[cpu_device][binding]") {
  const auto device = CpuWithLimit();
  struct Case {
    std::string result;
    std::vector<std::string> outputs;
    std::string text;
  };
  for (const Case& c : std::vector<Case>{
           {"x", {"a", "b"}, "the module returns 1 outputs, the configuration has 2 (a, b)"},
           {"x, x", {"a"}, "the module returns 2 outputs, the configuration has 1 (a)"},
           {"{'a': x, 'c': x}", {"a", "b"}, "output 'b' is not among the module's: a, c"},
           {"x, 3", {"a", "b"}, "output 'b' is a Int, not a tensor"},
           {"torch.complex(x, x)", {"a"}, "output 'a' has elements of type ComplexFloat, which no reply can carry"},
           {"x, x", {"o__0", "o__5"}, "output 'o__5': the module returns 2 outputs"},
       }) {
    INFO(c.result);
    const auto model = LoadSource(*device, SpecOf({"x"}, c.outputs), "def forward(self, x):\n    return " + c.result + "\n");
    const RunResult result = device->Run(*model, BatchOf({{1}}));
    REQUIRE(std::holds_alternative<ModelError>(result));
    CHECK(std::get<ModelError>(result).text == c.text);
  }
}

TEST_CASE("what the module throws is a model error in one line", "[cpu_device]") {
  const auto device = CpuWithLimit();
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}),
                                "def forward(self, x):\n    assert int(x.sum()) != 3, 'no threes'\n"
                                "    return x.view([7])\n");
  const RunResult raised = device->Run(*model, BatchOf({{1, 2}}));
  REQUIRE(std::holds_alternative<ModelError>(raised));
  CHECK(std::get<ModelError>(raised).text.find("no threes") != std::string::npos);
  const RunResult failed = device->Run(*model, BatchOf({{1}}));
  REQUIRE(std::holds_alternative<ModelError>(failed));
  CHECK(std::get<ModelError>(failed).text.find("shape '[7]' is invalid for input of size 1") != std::string::npos);
  CHECK(std::get<ModelError>(failed).text.find('\n') == std::string::npos);
  Succeed(device->Run(*model, BatchOf({{1, 1, 1, 1, 1, 1, 1}})));
}

TEST_CASE("a batch with another number of inputs is a model error", "[cpu_device]") {
  const auto device = CpuWithLimit();
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  CHECK(std::holds_alternative<ModelError>(device->Run(*model, BatchOf({{1}, {2}}))));
}

TEST_CASE("two threads run one model at once, each with its own peak", "[cpu_device]") {
  const auto device = CpuWithLimit();
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  std::vector<int> right(2);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < right.size(); ++i) {
    threads.emplace_back([&, i] {
      const std::int64_t elements = 128 * static_cast<std::int64_t>(i + 1);
      const PaddedBatch batch = OnesOf(elements);
      for (int round = 0; round < 300; ++round) {
        const RunResult result = device->Run(*model, batch);
        const auto* const output = std::get_if<RunOutput>(&result);
        if (output != nullptr && output->peak == Bytes{elements * 8} &&
            *reinterpret_cast<const float*>(output->outputs[0].data.get()) == 2) {
          ++right[i];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == std::vector<int>{300, 300});
}

TEST_CASE("memory tells the limit, what is free, and the peak since the last reset", "[cpu_device]") {
  const auto device = CpuWithLimit();
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kTwoTensors);
  const Bytes at_rest = device->Memory()->allocated;
  device->ResetPeak();
  Succeed(device->Run(*model, OnesOf(1024)));
  const DeviceMemory memory = *device->Memory();
  CHECK(memory.total == GiB(4));
  CHECK(memory.free == GiB(4) - at_rest);
  CHECK(memory.held == at_rest);
  CHECK(memory.unusable == Bytes{0});
  CHECK(memory.peak_held - at_rest == Bytes{8192});
  CHECK(device->name() == "cpu");
  CHECK(device->computes());
  CHECK(device->fingerprint().find("libtorch 2.") == 0);
}

TEST_CASE("a CUDA device that is not there is one clear error", "[torch_device]") {
  CpuWithLimit();
  const auto beyond = MakeCudaDevice(CudaDeviceCount(), std::nullopt);
  REQUIRE_FALSE(beyond.ok());
  const std::string text(beyond.status().message());
  if (CudaDeviceCount() == 0) {
    CHECK(absl::IsFailedPrecondition(beyond.status()));
    CHECK(text.find("cuda: no CUDA device is usable on this machine") == 0);
    CHECK(text.find("use --device cpu") != std::string::npos);
  } else {
    CHECK(absl::IsInvalidArgument(beyond.status()));
    CHECK(text.find("there is no such device") != std::string::npos);
  }
  CHECK(text.find('\n') == std::string::npos);
}

}  // namespace
}  // namespace headroom
