#include "server/fallback_check.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "test/fakes/toy_request.h"

namespace headroom {
namespace {

RepositoryModel Model(const std::string& name, const std::string& fallback = "") {
  RepositoryModel model;
  model.name = name;
  model.spec = ToySpec(name);
  model.spec.fallback_model = fallback;
  return model;
}

std::string FaultWith(const std::function<void(ModelSpec&)>& change) {
  std::vector<RepositoryModel> models = {Model("large", "small"), Model("small")};
  change(models[1].spec);
  return std::string(CheckFallbackModels(models).message());
}

TEST_CASE("a model of the same inputs and outputs may stand in", "[fallback_check]") {
  CHECK(FaultWith([](ModelSpec&) {}).empty());
  CHECK(FaultWith([](ModelSpec& small) { small.inputs[0].value_range.reset(); }).empty());
  CHECK(FaultWith([](ModelSpec& small) { small.max_batch_rows = 2; }).empty());
  CHECK(CheckFallbackModels({Model("alone")}).ok());
}

TEST_CASE("one that takes or gives something else may not, and the fault says why", "[fallback_check]") {
  const std::string prefix = "model 'large': config.pbtxt: memory.fallback_model: \"small\" cannot stand in: ";
  struct Case {
    std::function<void(ModelSpec&)> change;
    std::string why;
  };
  const std::vector<Case> cases = {
      {[](ModelSpec& s) { s.inputs[0].name = "ids"; }, "it has no such input as \"input_ids\""},
      {[](ModelSpec& s) { s.inputs[0].type = DataType::kInt32; }, "it has no such input as \"input_ids\""},
      {[](ModelSpec& s) { s.inputs[1].optional = false; }, "its input \"attention_mask\" is not optional"},
      {[](ModelSpec& s) {
         s.inputs[0].value_range = ValueRange{0, 500};
       },
       "its input \"input_ids\" has a smaller value_range"},
      {[](ModelSpec& s) { s.inputs.push_back({.name = "more", .dims = {1}, .value_range = {}}); }, "it needs an input \"more\""},
      {[](ModelSpec& s) { s.outputs[0].dims = {5}; }, "it has no such output as \"row\""},
      {[](ModelSpec& s) { s.outputs.push_back({.name = "more", .dims = {1}}); }, "it has other outputs besides"},
      {[](ModelSpec& s) { s.sequence.buckets = {32}; }, "its longest row is 32, that of the model 512"},
      {[](ModelSpec& s) { s.max_batch_rows = 0; }, "one of the two has no batch dimension"},
  };
  for (const Case& expected : cases) CHECK(FaultWith(expected.change) == prefix + expected.why);
}

TEST_CASE("one that is not there, or is the model itself, is a fault; all are told", "[fallback_check]") {
  const absl::Status status = CheckFallbackModels({Model("a", "nowhere"), Model("b", "b")});
  CHECK(absl::IsInvalidArgument(status));
  CHECK(std::string(status.message()) ==
        "model 'a': config.pbtxt: memory.fallback_model: \"nowhere\" cannot stand in: there is no such model in the repository\n"
        "model 'b': config.pbtxt: memory.fallback_model: \"b\" cannot stand in: it is the model itself");
}

}  // namespace
}  // namespace headroom
