// The incident, as it was: one batch of equally padded rows is run as it is, on the device and the allocator that the server uses,
// with nobody to split it.
//
//   headroom_naive_batch MODEL_FILE cpu|cuda:N LIMIT ROWS LENGTH
//
// MODEL_FILE is MiniLM's, or one with its inputs and output. Prints what came of it. Exit code: 0 it ran, 3 out of memory,
// 1 anything else.
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>

#include <cstdio>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "runtime/sample_batch.h"
#include "runtime/torch/torch_device.h"

namespace headroom {
namespace {

constexpr int kRan = 0;
constexpr int kFailed = 1;
constexpr int kOutOfMemory = 3;

ModelSpec MiniLm(std::int64_t rows) {
  ModelSpec spec;
  spec.name = "minilm";
  spec.max_batch_rows = rows;
  InputSpec& ids = spec.inputs.emplace_back();
  ids.name = "input_ids";
  ids.type = DataType::kInt64;
  ids.dims = {kSequenceAxis};
  ids.role = InputRole::kTokens;
  ids.value_range = ValueRange{0, 30521};
  InputSpec& mask = spec.inputs.emplace_back();
  mask.name = "attention_mask";
  mask.type = DataType::kInt64;
  mask.dims = {kSequenceAxis};
  mask.role = InputRole::kMask;
  spec.outputs.push_back({.name = "embedding", .type = DataType::kFp32, .dims = {384}});
  return spec;
}

int Fail(const std::string& why) {
  std::fprintf(stderr, "headroom_naive_batch: %s\n", why.c_str());
  return kFailed;
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const std::string& name, Bytes limit) {
  if (name == "cpu") return MakeCpuDevice(limit);
  int index = 0;
  if (!absl::StartsWith(name, "cuda:") || !absl::SimpleAtoi(name.substr(5), &index)) {
    return absl::InvalidArgumentError("the device is cpu or cuda:N, not " + name);
  }
  return MakeCudaDevice(index, limit);
}

int RunBatch(const std::string& file, const std::string& device_name, Bytes limit, const BatchShape& shape) {
  if (const absl::Status ready = InitializeTorch({}); !ready.ok()) return Fail(std::string(ready.message()));
  const auto device = MakeDevice(device_name, limit);
  if (!device.ok()) return Fail(std::string(device.status().message()));
  const ModelSpec spec = MiniLm(shape.rows);
  const auto model = (*device)->Load(file, spec);
  if (!model.ok()) return Fail(std::string(model.status().message()));

  const RunResult result = (*device)->Run(**model, SampleBatch(spec, shape, **device, 1));
  if (const auto* full = std::get_if<OutOfMemory>(&result)) {
    std::printf("out of memory: the batch would have held %s at least\n", ToString(full->at_least).c_str());
    return kOutOfMemory;
  }
  if (const auto* error = std::get_if<ModelError>(&result)) return Fail(error->text);
  if (const auto* lost = std::get_if<DeviceLost>(&result)) return Fail(lost->text);
  const auto& output = std::get<RunOutput>(result);
  std::printf("ran: the batch held %s\n", ToString(output.peak.value_or(Bytes{0})).c_str());
  return kRan;
}

int Main(const std::vector<std::string>& words) {
  BatchShape shape;
  if (words.size() != 5 || !absl::SimpleAtoi(words[3], &shape.rows) || !absl::SimpleAtoi(words[4], &shape.length) ||
      shape.rows < 1 || shape.length < 1) {
    return Fail("MODEL_FILE cpu|cuda:N LIMIT ROWS LENGTH");
  }
  const auto limit = ParseBytes(words[2]);
  if (!limit.ok()) return Fail(std::string(limit.status().message()));
  return RunBatch(words[0], words[1], *limit, shape);
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) { return headroom::Main({argv + 1, argv + argc}); }
