#include "runtime/output_check.h"

#include <catch2/catch.hpp>

namespace headroom {
namespace {

using Dims = std::vector<std::int64_t>;

HostTensor Tensor(DataType type, Dims shape) { return {type, std::move(shape), nullptr}; }

ModelSpec Spec(std::int64_t max_batch_rows, Dims dims) {
  ModelSpec spec;
  spec.max_batch_rows = max_batch_rows;
  spec.outputs = {{.name = "embedding", .type = DataType::kFp32, .dims = std::move(dims)}};
  return spec;
}

absl::Status Check(const ModelSpec& spec, DataType type, Dims shape) {
  std::vector<HostTensor> outputs;
  outputs.push_back(Tensor(type, std::move(shape)));
  return CheckOutputs(spec, {3, 20}, outputs);
}

TEST_CASE("outputs as declared pass", "[output_check]") {
  CHECK(Check(Spec(8, {4}), DataType::kFp32, {3, 4}).ok());
  CHECK(Check(Spec(8, {}), DataType::kFp32, {3}).ok());
  CHECK(Check(Spec(8, {kSequenceAxis, 4}), DataType::kFp32, {3, 20, 4}).ok());
  CHECK(Check(Spec(0, {4}), DataType::kFp32, {4}).ok());
  CHECK(Check(Spec(0, {2, kSequenceAxis}), DataType::kFp32, {2, 20}).ok());
}

TEST_CASE("an output that is not as declared is named, with what it is and what was declared", "[output_check]") {
  struct Case {
    std::int64_t max_batch_rows;
    Dims dims;
    DataType type;
    Dims shape;
    std::vector<std::string> words;
  };
  const auto c = GENERATE(values<Case>({
      {8, {4}, DataType::kFp64, {3, 4}, {"'embedding'", "FP64", "FP32"}},
      {8, {4}, DataType::kFp32, {1, 4}, {"'embedding'", "[1, 4]", "batch of 3 rows"}},
      {8, {4}, DataType::kFp32, {}, {"'embedding'", "[]", "rows"}},
      {8, {4}, DataType::kFp32, {3, 5}, {"'embedding'", "[3, 5]", "[3, 4]"}},
      {8, {4}, DataType::kFp32, {3, 4, 1}, {"'embedding'", "[3, 4, 1]", "[3, 4]"}},
      {8, {kSequenceAxis}, DataType::kFp32, {3, 19}, {"'embedding'", "[3, 19]", "[3, 20]"}},
      {0, {4}, DataType::kFp32, {1, 4}, {"'embedding'", "[1, 4]", "[4]"}},
  }));
  const absl::Status status = Check(Spec(c.max_batch_rows, c.dims), c.type, c.shape);
  CAPTURE(std::string(status.message()));
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  for (const std::string& word : c.words) CHECK_THAT(std::string(status.message()), Catch::Contains(word));
}

TEST_CASE("too few or too many outputs are told with both counts", "[output_check]") {
  ModelSpec spec = Spec(8, {4});
  const absl::Status none = CheckOutputs(spec, {3, 20}, {});
  CHECK(none.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(none.message()), Catch::Contains("returns 0") && Catch::Contains("declared are 1"));
}

TEST_CASE("the second output is checked like the first", "[output_check]") {
  ModelSpec spec = Spec(8, {4});
  spec.outputs.push_back({.name = "tokens", .type = DataType::kInt64, .dims = {kSequenceAxis}});
  std::vector<HostTensor> outputs;
  outputs.push_back(Tensor(DataType::kFp32, {3, 4}));
  outputs.push_back(Tensor(DataType::kInt64, {3, 21}));
  CHECK_THAT(std::string(CheckOutputs(spec, {3, 20}, outputs).message()), Catch::Contains("'tokens'"));
}

}  // namespace
}  // namespace headroom
