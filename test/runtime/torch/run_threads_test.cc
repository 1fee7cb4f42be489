#include "runtime/torch/run_threads.h"

#pragma push_macro("CHECK")
#undef CHECK
#include <ATen/Parallel.h>
#pragma pop_macro("CHECK")

#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>
#include <vector>

#include "test/runtime/torch/scripted_model.h"

namespace headroom {
namespace {

// Large enough for libtorch to spread it.
constexpr std::int64_t kMany = 1 << 20;
constexpr const char* kSpread = "def forward(self, x):\n    return torch.softmax(x.reshape(1024, 1024), 1).reshape(-1).exp()\n";

std::size_t ThreadsOfProcess() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

TEST_CASE("a run's threads are the calling thread's, and go when it ends", "[torch][run_threads]") {
  const auto device = CpuWithLimit();
  REQUIRE(at::get_num_threads() == 1);
  int elsewhere = 0;
  {
    const RunThreads three(3);
    CHECK(at::get_num_threads() == 3);
    std::jthread([&] {
      at::init_num_threads();
      elsewhere = at::get_num_threads();
    }).join();
    {
      const RunThreads same(3);
      const RunThreads none(0);
      CHECK(at::get_num_threads() == 3);
    }
    CHECK(at::get_num_threads() == 3);
  }
  CHECK(elsewhere == 1);
  CHECK(at::get_num_threads() == 1);
}

TEST_CASE("a run of several threads gives the same values, leaves no thread behind, and is counted whole", "[torch][run_threads]") {
  const auto device = CpuWithLimit();
  const auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kSpread);
  PaddedBatch batch = OnesOf(kMany);
  const std::vector<float> expected = FloatsOf(Succeed(device->Run(*model, batch)).outputs[0]);
  const std::size_t threads = ThreadsOfProcess();
  const Bytes at_rest = device->Memory()->allocated;
  batch.threads = 4;
  for (int i = 0; i < 3; ++i) {
    device->ResetPeak();
    const RunOutput output = Succeed(device->Run(*model, batch));
    CHECK(FloatsOf(output.outputs[0]) == expected);
    // What the pool's threads allocate would be in the process' peak and not in the run's.
    CHECK(device->Memory()->peak_held - at_rest == output.peak.value());
  }
  // A thread that has been joined may be listed a moment longer.
  for (int i = 0; i < 100'000 && ThreadsOfProcess() > threads; ++i) std::this_thread::yield();
  CHECK(ThreadsOfProcess() == threads);
  CHECK(at::get_num_threads() == 1);
}

}  // namespace
}  // namespace headroom
