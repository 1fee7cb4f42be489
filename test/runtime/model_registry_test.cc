#include "runtime/model_registry.h"

#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <thread>

#include "test/fakes/fake_device.h"
#include "test/fakes/toy_request.h"

namespace headroom {
namespace {

TEST_CASE("sixteen threads that ask at once share one load", "[registry]") {
  constexpr int kThreads = 16;
  FakeDevice device;
  ModelRegistry registry;
  std::barrier start(kThreads);
  // The load takes until every other thread has at least begun to ask.
  std::atomic<int> asking = 0;
  device.on_load = [&] {
    while (asking < kThreads) std::this_thread::yield();
    return absl::OkStatus();
  };
  std::vector<std::shared_ptr<const LoadedModel>> models(kThreads);
  {
    std::vector<std::jthread> threads;
    for (auto& model : models) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        ++asking;
        model = registry.Load(device, "model.pt", ToySpec(), 1).value();
      });
    }
  }
  CHECK(device.loads() == 1);
  for (const auto& model : models) CHECK(model == models.front());
}

TEST_CASE("a failed load is told, not remembered", "[registry]") {
  FakeDevice device;
  ModelRegistry registry;
  device.on_load = [] { return absl::InvalidArgumentError("not a TorchScript module"); };
  CHECK(registry.Load(device, "model.pt", ToySpec(), 1).status() == absl::InvalidArgumentError("not a TorchScript module"));
  device.on_load = [] { return absl::OkStatus(); };
  CHECK(registry.Load(device, "model.pt", ToySpec(), 1).ok());
  CHECK(device.loads() == 2);
}

TEST_CASE("a model is loaded anew after its last holder let go, and its memory was free meanwhile", "[registry]") {
  FakeDevice device;
  ModelRegistry registry;
  {
    const auto first = registry.Load(device, "model.pt", ToySpec(), 1).value();
    const auto second = registry.Load(device, "model.pt", ToySpec(), 1).value();
    CHECK(first == second);
    CHECK(device.in_use() == MiB(1));
  }
  CHECK(device.in_use() == Bytes{0});
  const auto again = registry.Load(device, "model.pt", ToySpec(), 1).value();
  CHECK(device.loads() == 2);
}

TEST_CASE("each version, model and device is loaded by itself", "[registry]") {
  FakeDevice device;
  FakeDevice other;
  ModelRegistry registry;
  const auto first = registry.Load(device, "model.pt", ToySpec("a"), 1).value();
  const auto version = registry.Load(device, "model.pt", ToySpec("a"), 2).value();
  const auto model = registry.Load(device, "model.pt", ToySpec("b"), 1).value();
  const auto elsewhere = registry.Load(other, "model.pt", ToySpec("a"), 1).value();
  CHECK(device.loads() == 3);
  CHECK(other.loads() == 1);
}

TEST_CASE("what is kept is what a load was settled to, and it is settled once", "[registry]") {
  FakeDevice device;
  ModelRegistry registry;
  int settled = 0;
  std::weak_ptr<const LoadedModel> as_loaded;
  const auto settle = [&](std::shared_ptr<const LoadedModel> loaded) -> absl::StatusOr<std::shared_ptr<const LoadedModel>> {
    ++settled;
    as_loaded = loaded;
    return device.Load("another form", ToySpec());
  };
  const auto first = registry.Load(device, "model.pt", ToySpec(), 1, settle).value();
  CHECK(as_loaded.expired());
  CHECK(registry.Load(device, "model.pt", ToySpec(), 1, settle).value() == first);
  CHECK(settled == 1);
  const auto refuse = [](const auto&) -> absl::StatusOr<std::shared_ptr<const LoadedModel>> {
    return absl::FailedPreconditionError("beyond a bound");
  };
  CHECK(registry.Load(device, "model.pt", ToySpec(), 2, refuse).status() == absl::FailedPreconditionError("beyond a bound"));
  CHECK(registry.Load(device, "model.pt", ToySpec(), 2).ok());
}

}  // namespace
}  // namespace headroom
