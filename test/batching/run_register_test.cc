#include "batching/run_register.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "test/fakes/toy_serving.h"

namespace headroom {
namespace {

std::vector<std::string> Models(const RunRegister& runs) {
  std::vector<std::string> models;
  for (const RunUnderWay& run : runs.UnderWay()) models.push_back(run.model);
  return models;
}

TEST_CASE("a run is under way as long as its entry lives", "[run_register]") {
  using Names = std::vector<std::string>;
  RunRegister runs;
  CHECK(Models(runs).empty());
  {
    const RunEntry first = runs.Enter({"a", {1, 32}, TimePoint{}, Duration::zero()});
    {
      const RunEntry second = runs.Enter({"b", {2, 32}, TimePoint{}, Duration::zero()});
      CHECK(Models(runs) == Names{"a", "b"});
    }
    const RunEntry third = runs.Enter({"c", {2, 32}, TimePoint{}, Duration::zero()});
    CHECK(Models(runs) == Names{"a", "c"});
  }
  CHECK(Models(runs).empty());
}

TEST_CASE("a batch is in its device's register while the device runs it", "[run_register]") {
  ToyServing serving{FakeDevice::Options()};
  const auto model = serving.Serve(ToySpec("P"));
  std::vector<RunUnderWay> seen;
  serving.device().during_run = [&](const PaddedBatch&) { seen = serving.serving_device().runs.UnderWay(); };
  const ToyRequest asked = serving.Ask(*model, {{1, 2, 3}, {4}});
  const Duration expected = model->instances.front().ExpectedRun({2, 32});
  serving.Worker().Step();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].model == "P");
  CHECK(seen[0].shape.rows == 2);
  CHECK(seen[0].started == serving.clock.Now());
  CHECK(seen[0].expected == expected);
  CHECK(expected > Duration::zero());
  CHECK(serving.serving_device().runs.UnderWay().empty());
}

}  // namespace
}  // namespace headroom
