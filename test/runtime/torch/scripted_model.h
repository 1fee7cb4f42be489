// TorchScript modules made from source text, saved to a temporary folder, and what the tests feed them.
#pragma once

// libtorch's logging defines CHECK as Catch2 does; in the tests it is Catch2's, whichever is included first.
#pragma push_macro("CHECK")
#undef CHECK
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#pragma pop_macro("CHECK")

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device.h"
#include "runtime/torch/torch_device.h"

namespace headroom {

// So that a failed check prints the figures.
inline std::ostream& operator<<(std::ostream& stream, Bytes bytes) { return stream << bytes.count << " B"; }

using Weights = std::vector<std::pair<std::string, std::int64_t>>;  // name and number of elements

// A folder that is removed with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "headroom-test-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The words that sources may use besides self: torch.anything(), fork(function, argument) and cuda.anything().
struct SourceWords final : torch::jit::NativeResolver {
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(const std::string& name, torch::jit::GraphFunction& method,
                                                         const torch::jit::SourceRange& place) override {
    if (name == "fork") return torch::jit::SpecialFormValue::create(c10::prim::fork);
    if (name == "cuda") return std::make_shared<torch::jit::BuiltinModule>("cuda");
    return NativeResolver::resolveValue(name, method, place);
  }
};

// Saves a module with the methods of `source` and float weights of ones.
inline std::filesystem::path SaveModule(const TemporaryFolder& folder, const std::string& source, const Weights& weights = {}) {
  torch::jit::Module module("M");
  for (const auto& [name, size] : weights) module.register_parameter(name, at::ones({size}), /*is_buffer=*/false);
  module.define(source, std::make_shared<SourceWords>());
  auto file = folder.path() / "model.pt";
  module.save(file.string());
  return file;
}

// The CPU device with `limit`, libtorch set up. The allocator is the process', so each test sets the limit it needs.
inline std::unique_ptr<Device> CpuWithLimit(Bytes limit = GiB(4)) {
  static const absl::Status ready = InitializeTorch({});
  REQUIRE(ready.ok());
  auto device = MakeCpuDevice(limit);
  REQUIRE(device.ok());
  return *std::move(device);
}

// Saves and loads; fails the test where loading fails.
inline std::shared_ptr<const LoadedModel> LoadSource(Device& device, const ModelSpec& spec, const std::string& source,
                                                     const Weights& weights = {}) {
  const TemporaryFolder folder;
  auto model = device.Load(SaveModule(folder, source, weights), spec);
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  return *std::move(model);
}

// What Load says of a module that it refuses; fails the test where it does not.
inline absl::Status RefusalOf(Device& device, const ModelSpec& spec, const std::string& source) {
  const TemporaryFolder folder;
  const auto model = device.Load(SaveModule(folder, source), spec);
  REQUIRE_FALSE(model.ok());
  return model.status();
}

// FP32 inputs and outputs of these names.
inline ModelSpec SpecOf(const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
  ModelSpec spec;
  spec.name = "toy";
  spec.max_batch_rows = 64;
  for (const std::string& name : inputs) spec.inputs.emplace_back().name = name;
  for (const std::string& name : outputs) spec.outputs.emplace_back().name = name;
  return spec;
}

// A batch with an FP32 input [rows] for each of `inputs`.
inline PaddedBatch BatchOf(const std::vector<std::vector<float>>& inputs) {
  PaddedBatch batch;
  for (const std::vector<float>& values : inputs) {
    HostTensor tensor;
    tensor.shape = {static_cast<std::int64_t>(values.size())};
    tensor.data = AllocateHost(tensor.size());
    std::memcpy(tensor.data.get(), values.data(), tensor.bytes().size());
    batch.shape.rows = tensor.shape[0];
    batch.inputs.push_back(std::move(tensor));
  }
  return batch;
}

// One FP32 input [elements] of ones.
inline PaddedBatch OnesOf(std::int64_t elements) { return BatchOf({std::vector<float>(static_cast<std::size_t>(elements), 1.0F)}); }

// As OnesOf, in memory from which a copy to `device` is fast.
inline PaddedBatch StagedOnes(Device& device, std::int64_t elements) {
  PaddedBatch batch = OnesOf(elements);
  HostTensor& input = batch.inputs.front();
  HostBuffer staged = device.AllocateStaging(input.size());
  std::copy(input.bytes().begin(), input.bytes().end(), staged.get());
  input.data = std::move(staged);
  return batch;
}

// Holds two tensors of the input's size at once beyond the input: the peak is known by hand.
inline constexpr const char* kTwoTensors = "def forward(self, x):\n    return (x + x) * x\n";

inline std::vector<float> FloatsOf(const HostTensor& tensor) {
  REQUIRE(tensor.type == DataType::kFp32);
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  std::memcpy(values.data(), tensor.data.get(), tensor.bytes().size());
  return values;
}

// The run's outputs; fails the test, saying why, where it has none.
inline RunOutput Succeed(RunResult result) {
  if (const auto* error = std::get_if<ModelError>(&result)) FAIL("model error: " << error->text);
  if (const auto* error = std::get_if<OutOfMemory>(&result)) FAIL("out of memory at " << error->at_least);
  if (const auto* error = std::get_if<DeviceLost>(&result)) FAIL("device lost: " << error->text);
  return std::get<RunOutput>(std::move(result));
}

}  // namespace headroom
