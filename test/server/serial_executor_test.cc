#include "server/serial_executor.h"

#include <catch2/catch.hpp>
#include <vector>

namespace headroom {
namespace {

TEST_CASE("tasks are done one after the other, in order, all of them before the end", "[serial_executor]") {
  std::vector<int> done;
  {
    SerialExecutor executor;
    for (int i = 0; i < 100; ++i) executor.Do([&done, i] { done.push_back(i); });
  }
  REQUIRE(done.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(done[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("an executor that was never asked ends", "[serial_executor]") { const SerialExecutor executor; }

}  // namespace
}  // namespace headroom
