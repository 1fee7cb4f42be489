#include "batching/served_model.h"

#include <catch2/catch.hpp>

#include "test/fakes/toy_serving.h"

namespace headroom {
namespace {

FakeDevice::Options Sized(Bytes total, std::string name) {
  FakeDevice::Options options;
  options.total = total;
  options.name = std::move(name);
  return options;
}

TEST_CASE("models that rows may wait for are a snapshot, added and removed whole", "[served_model]") {
  ToyServing serving(Sized(MiB(64), "cpu"));
  const auto old = serving.Serve(ToySpec());
  const auto before = serving.models.All();
  const auto replacement = serving.Serve(ToySpec());
  CHECK(*serving.models.All() == ModelSet::Models{old, replacement});
  CHECK(*before == ModelSet::Models{old});
  serving.models.Remove(*old);
  CHECK(*serving.models.All() == ModelSet::Models{replacement});
  serving.models.Remove(*old);
  CHECK(serving.models.All()->size() == 1);
}

TEST_CASE("a model knows itself on each device", "[served_model]") {
  ToyServing serving;
  ServingDevice& one = serving.AddDevice(Sized(MiB(64), "cuda:0"));
  ServingDevice& two = serving.AddDevice(Sized(MiB(64), "cuda:1"));
  const auto model = serving.Serve(ToySpec(), {1});
  CHECK(model->InstanceOn(one) == nullptr);
  REQUIRE(model->InstanceOn(two) != nullptr);
  CHECK(model->InstanceOn(two)->on == &two);
}

TEST_CASE("the room for a row is its margined estimate against a device's idle budget", "[served_model]") {
  ToyServing serving(Sized(MiB(64), "cpu"));
  const auto model = serving.Serve(ToySpec());
  const auto room = model->RoomFor(model->instances[0].ladder.Place(20).value());
  CHECK(room.needs == Scale(KiB(64 + 32), 1.05));
  CHECK(room.idle_budget == serving.budget().idle_budget());
  CHECK(room.fits());
}

TEST_CASE("a row fits where any device has room for it", "[served_model]") {
  // One row of 512 takes 576 KiB: too much for 80 % of what the weights leave of the small one.
  ToyServing serving;
  serving.AddDevice(Sized(KiB(1024 + 500), "cuda:0"));
  serving.AddDevice(Sized(MiB(8), "cuda:1"));
  const auto both = serving.Serve(ToySpec());
  const Placement longest = both->instances[0].ladder.Place(512).value();
  CHECK(both->RoomFor(longest).fits());
  CHECK(both->RoomFor(longest).idle_budget == serving.budget(1).idle_budget());
  ToyServing only_small(Sized(KiB(1024 + 500), "cuda:0"));
  const auto small = only_small.Serve(ToySpec());
  CHECK_FALSE(small->RoomFor(longest).fits());
  CHECK(small->RoomFor(longest).needs >= KiB(576));
}

TEST_CASE("the refusal of a row that never fits names what it needs and what is allowed", "[served_model]") {
  const absl::Status status = OverBudgetError(Bytes{600}, Bytes{500});
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(status.message()), Catch::Contains("600") && Catch::Contains("500"));
}

}  // namespace
}  // namespace headroom
