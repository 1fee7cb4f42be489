#include "batching/latency_model.h"

#include <catch2/catch.hpp>
#include <random>

namespace headroom {
namespace {

using std::chrono::milliseconds;

LengthCurve Curve(std::int64_t length, std::vector<std::pair<std::int64_t, std::int64_t>> points) {
  LengthCurve curve;
  curve.length = length;
  for (const auto& [rows, ms] : points) curve.points.push_back({rows, Bytes{1}, milliseconds(ms), Bytes{1}});
  return curve;
}

std::int64_t Milliseconds(Duration duration) { return std::chrono::round<milliseconds>(duration).count(); }

TEST_CASE("a latency is read off what was measured", "[latency]") {
  const CalibratedLatency latency({Curve(32, {{1, 10}, {2, 12}, {8, 36}}), Curve(64, {{1, 20}, {8, 90}})});
  struct Case {
    BatchShape shape;
    std::int64_t ms;
  };
  for (const auto& [shape, ms] : std::vector<Case>{
           {{1, 32}, 10},
           {{2, 32}, 12},
           {{5, 32}, 24},   // half way from 2 to 8
           {{16, 32}, 72},  // twice the most that was measured
           {{1, 20}, 10},   // as the shortest known
           {{1, 48}, 15},   // half way from 32 to 64
           {{8, 48}, 63},
           {{8, 64}, 90},
           {{8, 128}, 180},  // twice as long as the longest
       }) {
    CAPTURE(shape.rows, shape.length);
    CHECK(Milliseconds(latency.Of(shape)) == ms);
  }
  CHECK(latency.MostRows(32) == 8);
  CHECK(latency.MostRows(100) == 8);
}

TEST_CASE("noise makes a larger shape neither quicker nor slower a row", "[latency]") {
  const CalibratedLatency latency({Curve(32, {{1, 10}, {2, 7}, {4, 30}}), Curve(64, {{1, 8}, {4, 25}})});
  CHECK(Milliseconds(latency.Of({2, 32})) == 10);
  CHECK(Milliseconds(latency.Of({1, 64})) == 10);
  CHECK(Milliseconds(latency.Of({4, 32})) == 20);  // twice what two rows take
  CHECK(Milliseconds(latency.Of({4, 64})) == 25);
}

TEST_CASE("nothing measured is no time", "[latency]") {
  CHECK(CalibratedLatency({LengthCurve{}}).Of({4, 32}) == Duration::zero());
  CHECK(CalibratedLatency({LengthCurve{}}).MostRows(32) == 1);
}

LatencyModel TenMillisecondsARow() { return LatencyModel(CalibratedLatency({Curve(32, {{1, 10}, {64, 640}})})); }

TEST_CASE("a model that has learned nothing says what calibration says", "[latency]") {
  const LatencyModel model = TenMillisecondsARow();
  CHECK(Milliseconds(model.Of({4, 32})) == 40);
  CHECK(model.line().fixed == Duration::zero());
  CHECK(model.line().scale == 1);
}

TEST_CASE("for plans a batch costs something beside its run, though its run alone was measured", "[latency]") {
  LatencyModel model = TenMillisecondsARow();
  CHECK(model.times().Of({4, 32}) - model.Of({4, 32}) == LatencyModel::kBesideRun);
  for (int i = 0; i < 40; ++i) {
    const std::int64_t rows = 1 + i % 8;
    model.Observe({rows, 32}, milliseconds(100 + 20 * rows));
  }
  CHECK(model.times().Of({4, 32}) == model.Of({4, 32}));  // it has been learned, and more
}

TEST_CASE("what comes with every batch is told from what scales", "[latency]") {
  LatencyModel model = TenMillisecondsARow();
  for (int i = 0; i < 40; ++i) {
    const std::int64_t rows = 1 + i % 8;
    model.Observe({rows, 32}, milliseconds(100 + 20 * rows));
  }
  CHECK(std::abs(Milliseconds(model.line().fixed) - 100) <= 2);
  CHECK(model.line().scale == Approx(2).epsilon(0.03));
  CHECK(std::abs(Milliseconds(model.Of({32, 32})) - 740) <= 10);
}

TEST_CASE("where all batches are alike, what was not foreseen is taken for fixed", "[latency]") {
  LatencyModel model = TenMillisecondsARow();
  for (int i = 0; i < 20; ++i) model.Observe({1, 32}, milliseconds(310));
  CHECK(Milliseconds(model.Of({1, 32})) == 310);
  CHECK(Milliseconds(model.Of({64, 32})) == 940);  // not 64 × 310
}

TEST_CASE("a machine quicker than at calibration is no less than nothing", "[latency]") {
  LatencyModel model = TenMillisecondsARow();
  for (int i = 0; i < 40; ++i) {
    const std::int64_t rows = 1 + i % 8;
    model.Observe({rows, 32}, milliseconds(5 * rows));
  }
  CHECK(Milliseconds(model.Of({1, 32})) == 5);
  CHECK(Milliseconds(model.Of({64, 32})) == 320);
  CHECK(model.line().fixed == Duration::zero());
}

TEST_CASE("what most batches do not exceed is a tenth more, or what their spread asks for", "[latency]") {
  LatencyModel model = TenMillisecondsARow();
  CHECK(Milliseconds(model.AtMost({10, 32})) == 110);
  for (int i = 0; i < 40; ++i) model.Observe({10, 32}, milliseconds(100));
  CHECK(Milliseconds(model.AtMost({10, 32})) == 110);
  for (int i = 0; i < 100; ++i) model.Observe({10, 32}, milliseconds(i % 2 == 0 ? 80 : 120));
  CHECK(std::abs(Milliseconds(model.AtMost({10, 32})) - 140) <= 5);
}

TEST_CASE("one stray batch hardly counts, a change that stays is learned within 60", "[latency]") {
  LatencyModel model = TenMillisecondsARow();
  for (int i = 0; i < 60; ++i) model.Observe({1 + i % 8, 32}, milliseconds(10 * (1 + i % 8)));
  model.Observe({4, 32}, std::chrono::seconds(20));
  CHECK(Milliseconds(model.Of({4, 32})) < 60);
  for (int i = 0; i < 60; ++i) model.Observe({1 + i % 8, 32}, milliseconds(100 * (1 + i % 8)));
  CHECK(Milliseconds(model.Of({4, 32})) > 320);
  CHECK(Milliseconds(model.Of({4, 32})) < 480);
}

TEST_CASE("whatever is observed, a larger batch is not foreseen to be quicker", "[latency][property]") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int repeat = 0; repeat < 50; ++repeat) {
    LatencyModel model(CalibratedLatency({Curve(32, {{1, 10}, {64, 200}}), Curve(512, {{1, 100}, {16, 900}})}));
    for (int i = 0; i < 30; ++i) {
      model.Observe({1 + static_cast<std::int64_t>(random() % 64), 1 + static_cast<std::int64_t>(random() % 512)},
                    milliseconds(random() % 3000));
    }
    Duration before{0};
    for (std::int64_t rows = 1; rows <= 80; rows += 7) {
      const Duration foreseen = model.Of({rows, 100});
      CHECK(foreseen >= before);
      CHECK(model.Of({rows, 300}) >= foreseen);
      before = foreseen;
    }
  }
}

}  // namespace
}  // namespace headroom
