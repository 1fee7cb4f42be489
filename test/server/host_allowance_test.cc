#include "server/host_allowance.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>

#include "server/host_memory.h"
#include "test/fakes/toy_serving.h"

namespace headroom {
namespace {

TEST_CASE("the default is a tenth of the CPU's limit, a quarter of the host's memory beside GPUs, 64 MiB at least",
          "[host_allowance]") {
  CHECK(DefaultHostLimit(/*shares_device_memory=*/true, GiB(10)) == GiB(1));
  CHECK(DefaultHostLimit(/*shares_device_memory=*/false, GiB(8)) == GiB(2));
  CHECK(DefaultHostLimit(true, MiB(100)) == MiB(64));
  CHECK(DefaultHostLimit(false, MiB(100)) == MiB(64));
}

TEST_CASE("batches and requests together stay within the memory that they share", "[host_allowance]") {
  // What --memory-fraction leaves of the limit is more than requests get.
  for (const Bytes limit : {MiB(640), GiB(2), GiB(64)}) {
    const auto allowance = AllowanceFor(std::nullopt, true, limit, MiB(1));
    REQUIRE(allowance.ok());
    CHECK(Scale(limit, 0.8) + allowance->limit < limit);
  }
}

TEST_CASE("the wire's part is a third of what there is", "[host_allowance]") {
  const auto allowance = AllowanceFor(MiB(300), true, GiB(2), MiB(10));
  REQUIRE(allowance.ok());
  CHECK(allowance->wire == MiB(100));
  CHECK(allowance->for_requests() == MiB(200));
  CHECK(allowance->staging == MiB(10));
}

TEST_CASE("staging that leaves requests too little is a fault of the limit that was given; a default grows with it",
          "[host_allowance]") {
  const auto refused = AllowanceFor(MiB(100), true, GiB(2), MiB(51));
  CHECK(absl::IsFailedPrecondition(refused.status()));
  CHECK(std::string(refused.status().message()).find("--host-memory-limit") == 0);
  const auto grown = AllowanceFor(std::nullopt, true, MiB(100), MiB(51));
  REQUIRE(grown.ok());
  CHECK(grown->limit == MiB(102));
}

TEST_CASE("a batch's staging is its inputs, and its outputs where they come from a GPU", "[host_allowance]") {
  const ModelSpec spec = ToySpec();
  const BatchShape shape{8, 32};
  CHECK(StagingBytes(spec, shape, DeviceKind::kCpu) == Bytes{2 * 8 * 32 * 8});
  CHECK(StagingBytes(spec, shape, DeviceKind::kCuda) == Bytes{2 * 8 * 32 * 8 + 8 * 4 * 4});
}

TEST_CASE("a batch counts its staging while it is put together and run", "[host_allowance]") {
  ToyServing serving(FakeDevice::Options{});
  HostBudget host;
  host.Open(MiB(1), KiB(100));
  serving.serving_device().host = &host;
  Bytes during{0};
  serving.device().during_run = [&](const PaddedBatch&) { during = host.usage().of(HostStage::kStaging); };
  const auto model = serving.Serve(ToySpec());
  const ToyRequest toy = serving.Ask(*model, {Row(10), Row(20)});
  Batcher worker = serving.Worker();
  worker.Step();
  CHECK(toy.answer->status().ok());
  CHECK(during == Bytes{2 * 2 * 32 * 8});
  CHECK(host.usage().of(HostStage::kStaging) == Bytes{0});
}

}  // namespace
}  // namespace headroom
