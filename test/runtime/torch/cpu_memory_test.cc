#include "runtime/torch/cpu_memory.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "runtime/torch/torch_error.h"
#include "test/runtime/torch/scripted_model.h"

namespace headroom {
namespace {

at::Tensor Floats(std::int64_t bytes) { return at::empty({bytes / 4}); }

TEST_CASE("tensors are counted in blocks of 512 bytes and given back", "[cpu_memory]") {
  CpuWithLimit();
  const Bytes before = ReadCpuMemory().allocated;
  for (const auto& [bytes, counted] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 0}, {4, 512}, {512, 512}, {516, 1024}, {1 << 20, 1 << 20}}) {
    const at::Tensor tensor = Floats(bytes);
    CHECK(ReadCpuMemory().allocated - before == Bytes{counted});
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64 == 0);
  }
  CHECK(ReadCpuMemory().allocated == before);
}

TEST_CASE("the limit is kept to the byte, and a refused tensor leaves nothing behind", "[cpu_memory]") {
  CpuWithLimit();
  const Bytes before = ReadCpuMemory().allocated;
  LimitCpuMemory(before + Bytes{4096});
  {
    const at::Tensor kept = Floats(2048);
    const CpuMemoryScope scope;
    const auto failure = CatchFailure([] { Floats(2049 + 3); });
    REQUIRE(failure.has_value());
    CHECK(failure->out_of_memory);
    CHECK(scope.refused() == Bytes{2560});
    CHECK(ReadCpuMemory().allocated - before == Bytes{2048});
    CHECK_FALSE(CatchFailure([] { Floats(2048); }).has_value());
  }
  CHECK(ReadCpuMemory().allocated == before);
  CpuWithLimit();
}

TEST_CASE("a size beyond any machine is out of memory, not an overflow", "[cpu_memory]") {
  CpuWithLimit();
  const CpuMemoryScope scope;
  const auto failure = CatchFailure([] { Floats(std::int64_t{1} << 62U); });
  REQUIRE(failure.has_value());
  CHECK(failure->out_of_memory);
}

TEST_CASE("a scope measures its own peak and not the memory from before it", "[cpu_memory]") {
  CpuWithLimit();
  at::Tensor old = Floats(1 << 20);
  const CpuMemoryScope scope;
  at::Tensor first = Floats(8192);
  old.reset();  // frees a megabyte that the scope never held
  first.reset();
  const at::Tensor second = Floats(4096);
  CHECK(scope.peak() == Bytes{8192});
}

TEST_CASE("a capped scope refuses what would pass its cap", "[cpu_memory]") {
  CpuWithLimit();
  const CpuMemoryScope scope(Bytes{1024});
  const at::Tensor kept = Floats(1024);
  CHECK(CatchFailure([] { Floats(4); }).has_value());
  CHECK(scope.refused() == Bytes{1536});
}

TEST_CASE("scopes of different threads do not see each other", "[cpu_memory]") {
  CpuWithLimit();
  std::vector<std::int64_t> peaks(2);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < peaks.size(); ++i) {
    threads.emplace_back([&, i] {
      const CpuMemoryScope scope;
      for (int round = 0; round < 1000; ++round) Floats(static_cast<std::int64_t>(i + 1) * 4096);
      peaks[i] = scope.peak().count;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(peaks == std::vector<std::int64_t>{4096, 8192});
}

TEST_CASE("large blocks are kept for the next tensors, within what may be held", "[cpu_memory]") {
  CpuWithLimit();
  ReleaseKeptCpuMemory();
  const Bytes before = ReadCpuMemory().allocated;
  const auto kept = [] { return ReadCpuMemory().kept; };
  LimitCpuHeld(before + MiB(8));
  const void* first = nullptr;
  {
    const at::Tensor tensor = Floats(MiB(4).count);
    first = tensor.data_ptr();
    CHECK(kept() == Bytes{0});
  }
  CHECK(kept() >= MiB(4));
  CHECK(kept() <= MiB(4) + KiB(4));
  CHECK(ReadCpuMemory().allocated == before);  // kept is free
  {
    const at::Tensor again = Floats(MiB(4).count);
    CHECK(again.data_ptr() == first);
    const at::Tensor other = Floats(MiB(3).count);
  }
  CHECK(kept() > MiB(6));
  {
    // More than what is kept has room for: what does not fit makes room.
    const at::Tensor larger = Floats(MiB(7).count);
    CHECK(kept() <= MiB(1));
  }
  CHECK(kept() <= MiB(8));
  LimitCpuHeld(before + MiB(1));
  CHECK(kept() <= MiB(1));
  ReleaseKeptCpuMemory();
  CHECK(kept() == Bytes{0});
  { const at::Tensor small = Floats(KiB(512).count); }
  CHECK(kept() == Bytes{0});  // malloc's
}

TEST_CASE("threads that race for the limit never pass it together", "[cpu_memory]") {
  CpuWithLimit();
  const Bytes before = ReadCpuMemory().allocated;
  const Bytes limit = before + KiB(64);
  LimitCpuMemory(limit);
  ResetCpuPeak();
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        if (CatchFailure([] { Floats(KiB(24).count); }).has_value()) ++refused;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(ReadCpuMemory().peak <= limit);
  CHECK(ReadCpuMemory().allocated == before);
  CpuWithLimit();
}

}  // namespace
}  // namespace headroom
