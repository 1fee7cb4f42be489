#include "runtime/sample_batch.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "test/fakes/fake_device.h"
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

TEST_CASE("an input has a batch dimension where the model has one, and the batch's length", "[sample_batch]") {
  FakeDevice device;
  ModelSpec spec = ToySpec();
  const InputSpec middle{.name = "x", .type = DataType::kFp16, .dims = {2, -1, 3}, .value_range = {}};
  CHECK(AllocateInput(spec, middle, {4, 10}, device).shape == std::vector<std::int64_t>{4, 2, 10, 3});
  spec.max_batch_rows = 0;
  CHECK(AllocateInput(spec, middle, {1, 10}, device).shape == std::vector<std::int64_t>{2, 10, 3});
}

TEST_CASE("samples keep to the declared range, in every type", "[sample_batch]") {
  const auto [type, low, high] = GENERATE(table<DataType, double, double>({
      {DataType::kInt64, 0, 30521},
      {DataType::kInt64, 5, 5},
      {DataType::kInt32, -3, 3},
      {DataType::kInt8, -128, 127},
      {DataType::kUint8, 250, 255},
      {DataType::kInt64, 0.5, 2.5},
      {DataType::kFp32, -1.5, 2.5},
      {DataType::kFp16, 0.25, 0.5},
      {DataType::kBf16, 2, 2},
      {DataType::kFp64, -1e308, 1e308},
      {DataType::kFp32, 20000, 30000},
      {DataType::kFp32, -30000, -20000},
      {DataType::kFp64, -0x1p-20, 0},
  }));
  CAPTURE(NameOf(type), low, high);
  FakeDevice device;
  ModelSpec spec;
  spec.max_batch_rows = 16;
  spec.inputs = {{.name = "x", .type = type, .dims = {64}, .value_range = ValueRange{low, high}}};
  for (const double value : ValuesOf(SampleBatch(spec, {16, 0}, device, 7).inputs[0])) {
    REQUIRE(std::isfinite(value));
    REQUIRE(value >= low);
    REQUIRE(value <= high);
  }
}

TEST_CASE("integers reach both ends of a small range", "[sample_batch]") {
  FakeDevice device;
  ModelSpec spec;
  spec.max_batch_rows = 16;
  spec.inputs = {{.name = "x", .type = DataType::kInt32, .dims = {64}, .value_range = ValueRange{-2, 2}}};
  const auto values = ValuesOf(SampleBatch(spec, {16, 0}, device, 7).inputs[0]);
  CHECK(std::set<double>(values.begin(), values.end()) == std::set<double>{-2, -1, 0, 1, 2});
}

TEST_CASE("the largest random number stays inside the range", "[sample_batch]") {
  const double almost_one = 1 - 0x1p-53;
  const InputSpec ids{.name = "x", .type = DataType::kInt64, .dims = {}, .value_range = ValueRange{0, 30521}};
  CHECK(SampleValue(ids, 0) == 0);
  CHECK(SampleValue(ids, almost_one) == 30521);
  const InputSpec reals{.name = "x", .type = DataType::kFp64, .dims = {}, .value_range = ValueRange{0.1, 0.3}};
  CHECK(SampleValue(reals, almost_one) <= 0.3);
}

TEST_CASE("without a declared range samples lie between 0 and 1", "[sample_batch]") {
  FakeDevice device;
  ModelSpec spec;
  spec.max_batch_rows = 16;
  const DataType type = GENERATE(DataType::kBool, DataType::kInt64, DataType::kFp32);
  spec.inputs = {{.name = "x", .type = type, .dims = {64}, .value_range = {}}};
  const auto values = ValuesOf(SampleBatch(spec, {16, 0}, device, 7).inputs[0]);
  CHECK(*std::min_element(values.begin(), values.end()) >= 0);
  CHECK(*std::max_element(values.begin(), values.end()) <= 1);
}

TEST_CASE("masks are 1 throughout, since sample rows are as long as their batch", "[sample_batch]") {
  FakeDevice device;
  const PaddedBatch batch = SampleBatch(ToySpec(), {3, 20}, device, 7);
  REQUIRE(batch.inputs.size() == 2);
  CHECK(batch.shape == BatchShape{3, 20});
  CHECK(ValuesOf(batch.inputs[1]) == std::vector<double>(60, 1));
}

TEST_CASE("the same seed makes the same batch, another seed another one", "[sample_batch]") {
  FakeDevice device;
  const auto ids = [&](std::uint64_t seed) { return ValuesOf(SampleBatch(ToySpec(), {3, 20}, device, seed).inputs[0]); };
  CHECK(ids(1) == ids(1));
  CHECK(ids(1) != ids(2));
}

}  // namespace
}  // namespace headroom
