#include "runtime/page_pool.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

namespace headroom {
namespace {

constexpr Bytes kPage{4096};

TEST_CASE("what is given back is kept, and taken again", "[page_pool]") {
  PagePool pool;
  void* const first = pool.Take(MiB(2));
  REQUIRE(first != nullptr);
  std::memset(first, 1, 2 << 20);
  CHECK(pool.kept() == Bytes{0});
  pool.Give(first, MiB(2));
  CHECK(pool.kept() == MiB(2));
  void* const again = pool.Take(MiB(2));
  CHECK(again == first);
  CHECK(pool.kept() == Bytes{0});
  pool.Give(again, MiB(2));
}

// One piece of which a test gives back parts, so that it knows how they lie.
constexpr Bytes kWhole = MiB(16);
std::byte* TakeWhole(PagePool& pool) { return static_cast<std::byte*>(pool.Take(kWhole)); }

TEST_CASE("a piece is split, the smallest that is large enough, and its parts become one again", "[page_pool]") {
  PagePool pool;
  std::byte* const large = TakeWhole(pool);
  std::byte* const small = large + MiB(9).count;
  std::byte* const rest = large + MiB(12).count;
  pool.Give(large, MiB(8));
  pool.Give(small, MiB(2));

  void* const part = pool.Take(MiB(1) + Bytes{1});
  CHECK(part == small);
  CHECK(pool.kept() == MiB(9) - kPage);
  void* const head = pool.Take(MiB(3));
  CHECK(head == large);
  pool.Give(head, MiB(3));
  CHECK(pool.Take(MiB(8)) == large);

  // From both sides, and in between.
  pool.Give(large, MiB(8));
  pool.Give(rest, MiB(4));
  pool.Give(part, MiB(1) + Bytes{1});
  pool.Give(small + MiB(2).count, MiB(1));
  pool.Give(large + MiB(8).count, MiB(1));
  CHECK(pool.kept() == kWhole);
  CHECK(pool.Take(kWhole) == large);
  pool.Give(large, kWhole);
}

TEST_CASE("what is beyond a bound goes back to the system, the smallest pieces first", "[page_pool]") {
  PagePool pool;
  std::byte* const large = TakeWhole(pool);
  pool.Give(large, MiB(4));
  pool.Give(large + MiB(5).count, MiB(2));
  pool.KeepAtMost(MiB(5));
  CHECK(pool.kept() == MiB(5));
  CHECK(pool.Take(MiB(4)) == large);
  pool.Give(large, MiB(4));
  pool.KeepAtMost({-1});
  CHECK(pool.kept() == Bytes{0});
  pool.Give(large + MiB(4).count, MiB(1));
  pool.Give(large + MiB(7).count, MiB(9));
}

TEST_CASE("no two who hold a piece share a byte of it", "[page_pool][property]") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto draw = [&](int below) { return std::uniform_int_distribution<int>(0, below - 1)(random); };
  struct Held {
    unsigned char* memory;
    Bytes size;
    unsigned char mark;
  };
  PagePool pool;
  std::vector<Held> held;
  for (int step = 0; step < 5'000; ++step) {
    if (draw(2) == 0 && held.size() < 20) {
      const Bytes size{1 + draw(200'000)};
      auto* const memory = static_cast<unsigned char*>(pool.Take(size));
      REQUIRE(memory != nullptr);
      const auto mark = static_cast<unsigned char>(step);
      std::memset(memory, mark, static_cast<std::size_t>(size.count));
      held.push_back({memory, size, mark});
    } else if (!held.empty()) {
      std::swap(held.back(), held[static_cast<std::size_t>(draw(static_cast<int>(held.size())))]);
      const Held piece = held.back();
      held.pop_back();
      bool intact = true;
      for (std::int64_t i = 0; i < piece.size.count; ++i) intact = intact && piece.memory[i] == piece.mark;
      REQUIRE(intact);
      pool.Give(piece.memory, piece.size);
    }
    if (draw(10) == 0) pool.KeepAtMost({draw(2'000'000)});
  }
  for (const Held& piece : held) pool.Give(piece.memory, piece.size);
}

}  // namespace
}  // namespace headroom
