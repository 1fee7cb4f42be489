#include "batching/collator.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "test/fakes/fake_device.h"
#include "test/fakes/host_tensors.h"
#include "test/fakes/toy_request.h"

namespace headroom {
namespace {

std::vector<double> ValuesOf(const HostTensor& tensor) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    values.push_back(LoadElement(tensor.type, tensor.data.get() + i * SizeOf(tensor.type)));
  }
  return values;
}

// Requests that are finished when the test ends.
class Requests {
 public:
  explicit Requests(ModelSpec spec)
      : spec_(std::make_shared<const ModelSpec>(std::move(spec))), ladder_(*spec_, DeviceKind::kCpu) {}
  ~Requests() {
    for (const ToyRequest& toy : made_) {
      for (std::size_t i = 0; i < toy.request->rows().size(); ++i) toy.request->RowDropped();
    }
  }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  std::shared_ptr<Request> Add(const std::vector<Ids>& rows, const ToyRequestOptions& options = {}) {
    made_.push_back(MakeToyRequest(spec_, ladder_, rows, options));
    return made_.back().request;
  }
  // A request to a model with other inputs than the toy's: one row of `length`, its inputs' bytes as they are.
  std::shared_ptr<Request> AddRaw(std::int64_t length, std::int64_t client_length, const std::vector<HostTensor>& inputs) {
    Request::Parts parts;
    parts.spec = spec_;
    for (const HostTensor& input : inputs) parts.inputs.push_back({input.data.get()});
    parts.client_length = client_length;
    parts.rows = {{length, ladder_.Place(length).value()}};
    parts.done = [](const Reply&) {};
    made_.push_back({std::make_shared<Request>(std::move(parts))});
    return made_.back().request;
  }
  const ModelSpec& spec() const { return *spec_; }

 private:
  const std::shared_ptr<const ModelSpec> spec_;
  const BucketLadder ladder_;
  std::vector<ToyRequest> made_;
};

TEST_CASE("rows are padded on the right, and a mask that was left out is made of their lengths", "[collator]") {
  FakeDevice device;
  ModelSpec spec = ToySpec();
  spec.inputs[0].pad_value = 9;
  spec.inputs[1].pad_value = 5;  // a mask is padded with 0 all the same
  Requests requests(spec);
  const auto one = requests.Add({{1, 2, 3}, {4}});
  const auto two = requests.Add({{5, 6}});
  const std::vector<QueuedRow> rows = {{one, 1}, {two, 0}, {one, 0}};
  const PaddedBatch batch = Collate(requests.spec(), rows, {3, 4}, device);
  REQUIRE(batch.inputs.size() == 2);
  CHECK(batch.shape == BatchShape{3, 4});
  CHECK(batch.inputs[0].shape == std::vector<std::int64_t>{3, 4});
  CHECK(ValuesOf(batch.inputs[0]) == std::vector<double>{4, 9, 9, 9, /**/ 5, 6, 9, 9, /**/ 1, 2, 3, 9});
  CHECK(ValuesOf(batch.inputs[1]) == std::vector<double>{1, 0, 0, 0, /**/ 1, 1, 0, 0, /**/ 1, 1, 1, 0});
}

TEST_CASE("a mask that came keeps its holes", "[collator]") {
  FakeDevice device;
  Requests requests(ToySpec());
  const auto request = requests.Add({{1, 2, 3, 4}}, {.mask = {{1, 0, 0, 1}}});
  const PaddedBatch batch = Collate(requests.spec(), std::vector<QueuedRow>{{request, 0}}, {1, 6}, device);
  CHECK(ValuesOf(batch.inputs[0]) == std::vector<double>{1, 2, 3, 4, 0, 0});
  CHECK(ValuesOf(batch.inputs[1]) == std::vector<double>{1, 0, 0, 1, 0, 0});
}

TEST_CASE("what a client padded is trimmed, and replaced by our own padding", "[collator]") {
  FakeDevice device;
  Requests requests(ToySpec());
  const auto request = requests.Add({{1, 2}, {3, 4, 5}}, {.client_length = 600, .mask = {{1, 1}, {1, 1, 1}}});
  const PaddedBatch batch = Collate(requests.spec(), std::vector<QueuedRow>{{request, 0}, {request, 1}}, {2, 4}, device);
  CHECK(ValuesOf(batch.inputs[0]) == std::vector<double>{1, 2, 0, 0, /**/ 3, 4, 5, 0});
  CHECK(ValuesOf(batch.inputs[1]) == std::vector<double>{1, 1, 0, 0, /**/ 1, 1, 1, 0});
}

TEST_CASE("a row that is too long keeps its head", "[collator]") {
  FakeDevice device;
  ModelSpec spec = ToySpec();
  spec.sequence.buckets = {2};
  spec.sequence.tiers = {{8, TierAction::kTruncate}};
  Requests requests(spec);
  const auto request = requests.Add({{1, 2, 3, 4}});
  const PaddedBatch batch = Collate(requests.spec(), std::vector<QueuedRow>{{request, 0}}, {1, 2}, device);
  CHECK(ValuesOf(batch.inputs[0]) == std::vector<double>{1, 2});
  CHECK(ValuesOf(batch.inputs[1]) == std::vector<double>{1, 1});
}

TEST_CASE("a sequence axis may lie in the middle of the dimensions", "[collator]") {
  FakeDevice device;
  ModelSpec spec = ToySpec();
  spec.inputs = {{.name = "frames",
                  .type = DataType::kFp32,
                  .dims = {2, kSequenceAxis, 2},
                  .role = InputRole::kTokens,
                  .value_range = {},
                  .pad_value = -1}};
  spec.sequence.padding_safe = true;
  Requests requests(spec);
  std::vector<HostTensor> inputs;
  // Two channels of three steps of two numbers; the third step is the client's padding.
  inputs.push_back(TensorOf(DataType::kFp32, {2, 3, 2}, {1, 2, 3, 4, 99, 99, /**/ 5, 6, 7, 8, 99, 99}));
  const auto request = requests.AddRaw(2, 3, inputs);
  const PaddedBatch batch = Collate(requests.spec(), std::vector<QueuedRow>{{request, 0}}, {1, 4}, device);
  CHECK(batch.inputs[0].shape == std::vector<std::int64_t>{1, 2, 4, 2});
  CHECK(ValuesOf(batch.inputs[0]) == std::vector<double>{1, 2, 3, 4, -1, -1, -1, -1, /**/ 5, 6, 7, 8, -1, -1, -1, -1});
}

TEST_CASE("inputs that were left out, or have no sequence axis, are filled or copied", "[collator]") {
  FakeDevice device;
  ModelSpec spec = ToySpec();
  spec.inputs.push_back(
      {.name = "kind", .type = DataType::kInt32, .dims = {kSequenceAxis}, .optional = true, .value_range = {}, .pad_value = 7});
  spec.inputs.push_back(
      {.name = "scale", .type = DataType::kFp32, .dims = {2}, .optional = true, .value_range = {}, .pad_value = 0.5});
  spec.inputs.push_back({.name = "flags", .type = DataType::kBool, .dims = {2}, .value_range = {}});
  Requests requests(spec);
  std::vector<HostTensor> inputs;
  inputs.push_back(TensorOf(DataType::kInt64, {2}, {1, 2}));
  inputs.emplace_back();
  inputs.emplace_back();
  inputs.emplace_back();
  inputs.push_back(TensorOf(DataType::kBool, {2}, {1, 0}));
  const auto request = requests.AddRaw(2, 2, inputs);
  const PaddedBatch batch = Collate(requests.spec(), std::vector<QueuedRow>{{request, 0}}, {1, 3}, device);
  CHECK(ValuesOf(batch.inputs[1]) == std::vector<double>{1, 1, 0});
  CHECK(ValuesOf(batch.inputs[2]) == std::vector<double>{7, 7, 7});
  CHECK(batch.inputs[3].shape == std::vector<std::int64_t>{1, 2});
  CHECK(ValuesOf(batch.inputs[3]) == std::vector<double>{0.5, 0.5});
  CHECK(ValuesOf(batch.inputs[4]) == std::vector<double>{1, 0});
}

TEST_CASE("a model without a batch dimension gets its row as it is", "[collator]") {
  FakeDevice device;
  ModelSpec spec = ToySpec();
  spec.max_batch_rows = 0;
  Requests requests(spec);
  const auto request = requests.Add({{1, 2, 3}});
  const PaddedBatch batch = Collate(requests.spec(), std::vector<QueuedRow>{{request, 0}}, {1, 3}, device);
  CHECK(batch.inputs[0].shape == std::vector<std::int64_t>{3});
  CHECK(ValuesOf(batch.inputs[0]) == std::vector<double>{1, 2, 3});
}

std::vector<double> OutputOf(Request& request, std::size_t row, std::int64_t elements) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < elements; ++i) {
    values.push_back(LoadElement(DataType::kFp32, request.OutputRow(0, row) + i * 4));
  }
  return values;
}

TEST_CASE("outputs go to the rows they belong to, whatever the order of the batch", "[collator]") {
  ModelSpec spec = ToySpec();
  spec.outputs = {{.name = "row", .type = DataType::kFp32, .dims = {2}}};
  Requests requests(spec);
  const auto one = requests.Add({Row(3), Row(1)});
  const auto two = requests.Add({Row(2)});
  std::vector<HostTensor> outputs;
  outputs.push_back(TensorOf(DataType::kFp32, {3, 2}, {10, 11, 20, 21, 30, 31}));
  Scatter(requests.spec(), std::vector<QueuedRow>{{one, 1}, {two, 0}, {one, 0}}, {3, 4}, outputs);
  CHECK(OutputOf(*one, 1, 2) == std::vector<double>{10, 11});
  CHECK(OutputOf(*two, 0, 2) == std::vector<double>{20, 21});
  CHECK(OutputOf(*one, 0, 2) == std::vector<double>{30, 31});
}

TEST_CASE("an output that a request does not want is skipped for it, not for its mates", "[collator]") {
  ModelSpec spec = ToySpec();
  spec.outputs = {{.name = "row", .type = DataType::kFp32, .dims = {2}}};
  Requests requests(spec);
  const auto without = requests.Add({Row(3)}, {.wanted_outputs = {false}});
  const auto with = requests.Add({Row(3)});
  std::vector<HostTensor> outputs;
  outputs.push_back(TensorOf(DataType::kFp32, {2, 2}, {10, 11, 20, 21}));
  Scatter(requests.spec(), std::vector<QueuedRow>{{without, 0}, {with, 0}}, {2, 4}, outputs);
  CHECK(OutputOf(*with, 0, 2) == std::vector<double>{20, 21});
}

TEST_CASE("outputs along the sequence are cut back to the row and hold zeros beyond, at the client's length", "[collator]") {
  ModelSpec spec = ToySpec();
  spec.outputs = {{.name = "tokens", .type = DataType::kFp32, .dims = {kSequenceAxis}}};
  Requests requests(spec);
  const auto request = requests.Add({Row(3), Row(1)}, {.client_length = 5});
  std::vector<HostTensor> outputs;
  outputs.push_back(TensorOf(DataType::kFp32, {2, 4}, {1, 2, 3, 99, 4, 99, 99, 99}));
  Scatter(requests.spec(), std::vector<QueuedRow>{{request, 0}, {request, 1}}, {2, 4}, outputs);
  CHECK(OutputOf(*request, 0, 5) == std::vector<double>{1, 2, 3, 0, 0});
  CHECK(OutputOf(*request, 1, 5) == std::vector<double>{4, 0, 0, 0, 0});
}

TEST_CASE("an output's sequence axis may lie in the middle too", "[collator]") {
  ModelSpec spec = ToySpec();
  spec.outputs = {{.name = "frames", .type = DataType::kFp32, .dims = {2, kSequenceAxis, 2}}};
  Requests requests(spec);
  const auto request = requests.Add({Row(1)}, {.client_length = 3});
  std::vector<HostTensor> outputs;
  outputs.push_back(TensorOf(DataType::kFp32, {1, 2, 2, 2}, {1, 2, 99, 99, /**/ 3, 4, 99, 99}));
  Scatter(requests.spec(), std::vector<QueuedRow>{{request, 0}}, {1, 2}, outputs);
  CHECK(OutputOf(*request, 0, 12) == std::vector<double>{1, 2, 0, 0, 0, 0, /**/ 3, 4, 0, 0, 0, 0});
}

TEST_CASE("a cut row's outputs are as long as what was kept", "[collator]") {
  ModelSpec spec = ToySpec();
  spec.outputs = {{.name = "tokens", .type = DataType::kFp32, .dims = {kSequenceAxis}}};
  spec.sequence.buckets = {2};
  spec.sequence.tiers = {{8, TierAction::kTruncate}};
  Requests requests(spec);
  const auto request = requests.Add({Row(4), Row(1)});
  std::vector<HostTensor> outputs;
  outputs.push_back(TensorOf(DataType::kFp32, {2, 2}, {1, 2, 3, 99}));
  Scatter(requests.spec(), std::vector<QueuedRow>{{request, 0}, {request, 1}}, {2, 2}, outputs);
  CHECK(request->output_length() == 2);
  CHECK(OutputOf(*request, 0, 2) == std::vector<double>{1, 2});
  CHECK(OutputOf(*request, 1, 2) == std::vector<double>{3, 0});
}

TEST_CASE("a collated sample runs and its outputs scatter back: the toy model's numbers", "[collator]") {
  FakeDevice device;
  Requests requests(ToySpec());
  const auto model = device.Load("model.pt", requests.spec()).value();
  const auto request = requests.Add({{1, 2, 3}, {10}}, {.mask = {{1, 0, 1}, {1}}});
  const std::vector<QueuedRow> rows = {{request, 0}, {request, 1}};
  const RunResult result = device.Run(*model, Collate(requests.spec(), rows, {2, 8}, device));
  Scatter(requests.spec(), rows, {2, 8}, std::get<RunOutput>(result).outputs);
  CHECK(OutputOf(*request, 0, 4) == std::vector<double>{2, 4, 8, 2});
  CHECK(OutputOf(*request, 1, 4) == std::vector<double>{1, 10, 8, 2});
}

}  // namespace
}  // namespace headroom
