#include "server/model_statistics.h"

#include <catch2/catch.hpp>

namespace headroom {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST_CASE("statistics tell the totals, times in nanoseconds", "[statistics]") {
  ModelTotals totals;
  totals.rows = 7;
  totals.batches = 3;
  totals.succeeded = {4, milliseconds(40)};
  totals.failed = {2, milliseconds(5)};
  totals.queue = milliseconds(6);
  totals.compute_input = microseconds(7);
  totals.compute_infer = milliseconds(8);
  totals.compute_output = microseconds(9);
  totals.by_rows = {{2, {2, microseconds(1), microseconds(2), microseconds(3)}},
                    {3, {1, microseconds(4), microseconds(5), microseconds(6)}}};
  const inference::ModelStatistics told = StatisticsOf("P", 12, totals, 1'700'000'000'123);
  CHECK(told.name() == "P");
  CHECK(told.version() == "12");
  CHECK(told.last_inference() == 1'700'000'000'123);
  CHECK(told.inference_count() == 7);
  CHECK(told.execution_count() == 3);
  const inference::InferStatistics& spent = told.inference_stats();
  CHECK(spent.success().count() == 4);
  CHECK(spent.success().ns() == 40'000'000);
  CHECK(spent.fail().count() == 2);
  CHECK(spent.fail().ns() == 5'000'000);
  CHECK(spent.queue().count() == 4);
  CHECK(spent.queue().ns() == 6'000'000);
  CHECK(spent.compute_input().count() == 4);
  CHECK(spent.compute_input().ns() == 7'000);
  CHECK(spent.compute_infer().count() == 4);
  CHECK(spent.compute_infer().ns() == 8'000'000);
  CHECK(spent.compute_output().count() == 4);
  CHECK(spent.compute_output().ns() == 9'000);
  REQUIRE(told.batch_stats_size() == 2);
  CHECK(told.batch_stats(0).batch_size() == 2);
  CHECK(told.batch_stats(0).compute_input().count() == 2);
  CHECK(told.batch_stats(0).compute_input().ns() == 1'000);
  CHECK(told.batch_stats(1).batch_size() == 3);
  CHECK(told.batch_stats(1).compute_infer().ns() == 5'000);
  CHECK(told.batch_stats(1).compute_output().ns() == 6'000);
  CHECK(told.batch_stats(1).compute_output().count() == 1);
}

TEST_CASE("nothing was asked yet: zeros, and no last inference", "[statistics]") {
  const inference::ModelStatistics told = StatisticsOf("P", 1, {}, std::nullopt);
  CHECK(told.last_inference() == 0);
  CHECK(told.inference_stats().success().count() == 0);
  CHECK(told.batch_stats_size() == 0);
}

}  // namespace
}  // namespace headroom
