#include "batching/request_queue.h"

#include <catch2/catch.hpp>

#include "test/fakes/toy_request.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;

const TimePoint kNow{std::chrono::hours(1)};
const CalibratedLatency kNoTimes({});

class ByteAToken final : public MemoryEstimator {
 public:
  absl::StatusOr<Bytes> Peak(BatchShape shape) const override { return Bytes{shape.rows * shape.length}; }
};

// A queue, what it is asked with, and the requests in it.
struct Bench {
  explicit Bench(std::int64_t max_rows, Bytes max_bytes = Bytes{0}, QueueTotals* totals = nullptr)
      : queue({max_rows, max_bytes, totals}) {
    limits.available = limits.idle_budget = Bytes{100000};
    limits.max_rows = 8;
  }
  // What is left unfinished in a test is dropped, as a closing model would.
  ~Bench() {
    for (const QueuedRow& row : queue.Close()) row.request->RowDropped();
    for (const QueuedRow& row : held) row.request->RowDropped();
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  ToyRequest Make(const std::vector<Ids>& rows, ToyRequestOptions options = {}) {
    if (options.arrived == TimePoint{}) options.arrived = kNow;
    return MakeToyRequest(spec, ladder, rows, options);
  }
  ToyRequest Enqueued(const std::vector<Ids>& rows, ToyRequestOptions options = {}) {
    ToyRequest toy = Make(rows, std::move(options));
    if (!queue.Enqueue(toy.request).ok()) throw std::logic_error("the queue is full");
    return toy;
  }
  Claim ClaimBatch(TimePoint now = kNow) {
    Claim claim = queue.ClaimBatch(ladder, limits, ByteAToken(), BatchTimes(kNoTimes), now);
    Hold(claim);
    return claim;
  }
  Claim ClaimDead(TimePoint now) {
    Claim claim = queue.ClaimDead(now);
    Hold(claim);
    return claim;
  }
  void Hold(const Claim& claim) {
    for (const auto* rows : {&claim.rows, &claim.gone, &claim.expired, &claim.refused}) {
      held.insert(held.end(), rows->begin(), rows->end());
    }
  }

  const std::shared_ptr<const ModelSpec> spec = std::make_shared<const ModelSpec>(ToySpec());
  const BucketLadder ladder{*spec, DeviceKind::kCpu};
  PlanLimits limits;
  RequestQueue queue;
  std::vector<QueuedRow> held;
};

void Drop(const ToyRequest& toy) {
  for (std::size_t i = 0; i < toy.request->rows().size(); ++i) toy.request->RowDropped();
}

TEST_CASE("the queue is bounded in rows, and a request is taken whole or not at all", "[queue]") {
  Bench bench(5);
  bench.Enqueued({Row(4), Row(4), Row(4)});
  const ToyRequest three = bench.Make({Row(4), Row(4), Row(4)});
  const absl::Status full = bench.queue.Enqueue(three.request);
  CHECK(full.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(full.message()), Catch::Contains("3 rows came, 3 wait, 5 may"));
  CHECK(bench.queue.rows_waiting() == 3);
  bench.Enqueued({Row(4), Row(4)});  // exactly full
  CHECK(bench.queue.rows_waiting() == 5);
  const ToyRequest one = bench.Make({Row(4)});
  CHECK(bench.queue.Enqueue(one.request).code() == absl::StatusCode::kResourceExhausted);
  Drop(three);
  Drop(one);
}

TEST_CASE("a claim makes room for as many rows", "[queue]") {
  Bench bench(2);
  bench.Enqueued({Row(4), Row(4)});
  CHECK(bench.ClaimBatch().rows.size() == 2);
  CHECK(bench.queue.rows_waiting() == 0);
  bench.Enqueued({Row(4), Row(4)});
}

TEST_CASE("a claim takes the most urgent batch and leaves the others in order", "[queue]") {
  Bench bench(100);
  const ToyRequest first = bench.Enqueued({Row(20), Row(500), Row(10)}, {.arrived = kNow - milliseconds(3)});
  const ToyRequest second = bench.Enqueued({Row(30)}, {.arrived = kNow - milliseconds(2)});

  const Claim claim = bench.ClaimBatch();
  REQUIRE(claim.rows.size() == 3);
  CHECK(claim.rows[0].request == first.request);
  CHECK(claim.rows[0].index == 0);
  CHECK(claim.rows[1].index == 2);
  CHECK(claim.rows[2].request == second.request);
  CHECK(claim.batch.shape == BatchShape{3, 32});
  CHECK(claim.batch.needs == Bytes{96});
  CHECK(claim.rows_wait);

  const Claim next = bench.ClaimBatch();
  REQUIRE(next.rows.size() == 1);
  CHECK(next.rows[0].request == first.request);
  CHECK(next.rows[0].index == 1);
  CHECK_FALSE(next.rows_wait);
  CHECK(bench.ClaimBatch().rows.empty());
}

TEST_CASE("a claim takes out what is gone, expired or refused along with a batch", "[queue]") {
  Bench bench(100);
  bench.limits.idle_budget = bench.limits.available = Bytes{300};
  const ToyRequest cancelled = bench.Enqueued({Row(4)});
  cancelled.request->Cancel();
  const ToyRequest late = bench.Enqueued({Row(4)}, {.deadline = kNow});
  const ToyRequest huge = bench.Enqueued({Row(500)});
  const ToyRequest fine = bench.Enqueued({Row(4)});

  const Claim claim = bench.ClaimBatch();
  REQUIRE(claim.gone.size() == 1);
  CHECK(claim.gone[0].request == cancelled.request);
  REQUIRE(claim.expired.size() == 1);
  CHECK(claim.expired[0].request == late.request);
  REQUIRE(claim.refused.size() == 1);
  CHECK(claim.refused[0].request == huge.request);
  CHECK(claim.refused_need == std::vector<Bytes>{Bytes{512}});
  REQUIRE(claim.rows.size() == 1);
  CHECK(claim.rows[0].request == fine.request);
  CHECK(bench.queue.rows_waiting() == 0);
}

TEST_CASE("rows that wait for memory stay, and the claim says when to look again", "[queue]") {
  Bench bench(100);
  bench.limits.available = Bytes{10};
  bench.Enqueued({Row(4)}, {.deadline = kNow + milliseconds(7)});
  const Claim claim = bench.ClaimBatch();
  CHECK(claim.rows.empty());
  CHECK(claim.rows_wait);
  CHECK(claim.next_wake == kNow + milliseconds(7));
  CHECK(bench.queue.rows_waiting() == 1);
}

TEST_CASE("dead rows are taken out without a batch", "[queue]") {
  Bench bench(100);
  const ToyRequest late = bench.Enqueued({Row(4), Row(4)}, {.deadline = kNow + milliseconds(1)});
  const ToyRequest cancelled = bench.Enqueued({Row(4)}, {.deadline = kNow + milliseconds(1)});
  cancelled.request->Cancel();
  const ToyRequest later = bench.Enqueued({Row(4)}, {.deadline = kNow + milliseconds(5)});
  const ToyRequest patient = bench.Enqueued({Row(4)});

  const Claim before = bench.ClaimDead(kNow);
  CHECK(before.expired.empty());
  CHECK(before.gone.size() == 1);
  CHECK(before.next_wake == kNow + milliseconds(1));

  const Claim dead = bench.ClaimDead(kNow + milliseconds(1));
  CHECK(dead.expired.size() == 2);
  CHECK(dead.rows.empty());
  CHECK(dead.rows_wait);
  CHECK(dead.next_wake == kNow + milliseconds(5));
  CHECK(bench.queue.rows_waiting() == 2);
}

TEST_CASE("the most urgent row is the one of least priority number, then the one that is due first", "[queue]") {
  Bench bench(100);
  CHECK_FALSE(bench.queue.most_urgent().has_value());
  bench.Enqueued({Row(4)}, {.priority = 2, .arrived = kNow - milliseconds(9)});
  CHECK(bench.queue.most_urgent() == RowUrgency{2, kNow + milliseconds(991)});
  bench.Enqueued({Row(4)}, {.priority = 1, .arrived = kNow});
  CHECK(bench.queue.most_urgent() == RowUrgency{1, kNow + milliseconds(1000)});
  bench.Enqueued({Row(4)}, {.priority = 1, .arrived = kNow - milliseconds(1)});
  CHECK(bench.queue.most_urgent() == RowUrgency{1, kNow + milliseconds(999)});
  bench.Enqueued({Row(4)}, {.priority = 1, .arrived = kNow, .deadline = kNow + milliseconds(5)});
  CHECK(bench.queue.most_urgent() == RowUrgency{1, kNow + milliseconds(5)});
}

TEST_CASE("a closed queue gives up its rows and refuses newcomers", "[queue]") {
  Bench bench(100);
  const ToyRequest waiting = bench.Enqueued({Row(4), Row(4)});
  const auto rows = bench.queue.Close();
  CHECK(rows.size() == 2);
  CHECK(bench.queue.rows_waiting() == 0);
  const ToyRequest late = bench.Make({Row(4)});
  CHECK(bench.queue.Enqueue(late.request).code() == absl::StatusCode::kUnavailable);
  Drop(waiting);
  Drop(late);
}

TEST_CASE("the queue is bounded in bytes too, each row standing for its part of its request", "[queue]") {
  Bench bench(100, Bytes{1000});
  bench.Enqueued({Row(4), Row(4)}, {.bytes = Bytes{600}});
  const ToyRequest large = bench.Make({Row(4)}, {.bytes = Bytes{500}});
  const absl::Status full = bench.queue.Enqueue(large.request);
  CHECK(full.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(full.message()), Catch::Contains("500 bytes came, 600 wait, 1000 may"));
  Drop(large);
  bench.limits.max_rows = 1;
  CHECK(bench.ClaimBatch().rows.size() == 1);
  CHECK(bench.queue.load().bytes == Bytes{300});
  bench.Enqueued({Row(4)}, {.bytes = Bytes{500}});
  CHECK(bench.queue.load().bytes == Bytes{800});
}

TEST_CASE("all queues together are bounded, and what leaves one makes room in another", "[queue]") {
  QueueTotals totals({.rows = 5, .bytes = Bytes{500}});
  Bench one(100, Bytes{0}, &totals);
  Bench two(100, Bytes{0}, &totals);
  one.Enqueued({Row(4), Row(4), Row(4)}, {.bytes = Bytes{300}});
  const ToyRequest many = two.Make({Row(4), Row(4), Row(4)}, {.bytes = Bytes{30}});
  CHECK(two.queue.Enqueue(many.request).code() == absl::StatusCode::kResourceExhausted);
  CHECK(two.queue.load() == Load{});
  const ToyRequest large = two.Make({Row(4)}, {.bytes = Bytes{201}});
  CHECK(two.queue.Enqueue(large.request).code() == absl::StatusCode::kResourceExhausted);
  Drop(large);
  CHECK(one.ClaimBatch().rows.size() == 3);
  REQUIRE(two.queue.Enqueue(many.request).ok());
  for (const QueuedRow& row : two.queue.Close()) row.request->RowDropped();
  two.queue.Close();
  one.Enqueued({Row(4), Row(4), Row(4), Row(4), Row(4)}, {.bytes = Bytes{500}});
}

TEST_CASE("what waits is told by priority and by caller, to the last row", "[queue]") {
  Bench bench(100);
  bench.Enqueued({Row(4), Row(4)}, {.priority = 1, .caller = 5});
  bench.Enqueued({Row(4)}, {.priority = 2, .caller = 6});
  const ToyRequest expiring = bench.Enqueued({Row(4)}, {.priority = 2, .caller = 5, .deadline = kNow + milliseconds(1)});
  CHECK(bench.queue.LoadSeenBy(1, 5).ahead.rows == 2);
  CHECK(bench.queue.LoadSeenBy(2, 5).ahead.rows == 4);
  CHECK(bench.queue.LoadSeenBy(2, 5).own.rows == 3);
  CHECK(bench.queue.LoadSeenBy(2, 9).own.rows == 0);
  CHECK(bench.queue.LoadSeenBy(2, 0).own.rows == 0);
  bench.ClaimDead(kNow + milliseconds(1));
  CHECK(bench.queue.LoadSeenBy(2, 5).own.rows == 2);
  bench.limits.max_rows = 2;
  Claim claim = bench.queue.ClaimBatch(bench.ladder, bench.limits, ByteAToken(), BatchTimes(kNoTimes), kNow);
  CHECK(bench.queue.LoadSeenBy(2, 5).own.rows == 0);
  REQUIRE(bench.queue.PutBack(std::move(claim.rows.back())).ok());
  claim.rows.pop_back();
  bench.Hold(claim);
  CHECK(bench.queue.LoadSeenBy(2, 5).own.rows == 1);
  CHECK(bench.queue.load().rows == 2);
}

TEST_CASE("the oldest row is passed by seven batches at most", "[queue]") {
  Bench bench(100);
  bench.limits.max_rows = 1;
  bench.Enqueued({Row(4, 99)}, {.priority = 2, .arrived = kNow - milliseconds(5)});
  int before_it = 0;
  while (true) {
    bench.Enqueued({Row(4, 1)}, {.priority = 1});
    bench.Enqueued({Row(4, 1)}, {.priority = 1});
    const Claim claim = bench.ClaimBatch();
    REQUIRE(claim.rows.size() == 1);
    if (claim.rows.front().request->priority() == 2) break;
    REQUIRE(++before_it < 50);
  }
  CHECK(before_it == RequestQueue::kMostPassedBy);
}

TEST_CASE("it is told how old the oldest row is", "[queue]") {
  Bench bench(100);
  CHECK_FALSE(bench.queue.oldest_arrival().has_value());
  bench.Enqueued({Row(4)}, {.arrived = kNow - milliseconds(3)});
  bench.Enqueued({Row(4)}, {.arrived = kNow - milliseconds(9)});
  CHECK(bench.queue.oldest_arrival() == kNow - milliseconds(9));
}

}  // namespace
}  // namespace headroom
