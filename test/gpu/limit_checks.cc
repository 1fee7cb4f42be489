// What may be held at most, and whether it can be held again and again.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <random>

#include "runtime/sample_batch.h"
#include "test/gpu/checks.h"
#include "test/gpu/traffic.h"

namespace headroom {
namespace {

constexpr std::uint64_t kSampleSeed = 4;

// Batches one after the other, each with a reservation, as a worker runs them.
class ReservedRuns {
 public:
  ReservedRuns(CheckRun& run, Verdict& verdict) : run_(run), verdict_(verdict) {}

  // Runs as many of `rows` as the memory that is available now allows. How many those were.
  std::int64_t Run(const CheckedModel& model, std::int64_t rows, std::int64_t length) {
    auto reservation = run_.budget().ReserveAvailable();
    if (!verdict_.RequireOk(reservation.status(), "reserving")) return 0;
    const std::int64_t fitting = std::min(rows, model.RowsWithin(length, reservation->bytes()));
    if (fitting == 0) return 0;
    reservation->Shrink(model.Needs({fitting, length}));
    const RunResult result =
        run_.device().Run(*model.loaded, SampleBatch(*model.spec, {fitting, length}, run_.device(), kSampleSeed));
    ++runs_;
    if (std::holds_alternative<RunOutput>(result)) return fitting;
    ++failures_;
    if (failures_ == 1) {
      PrintInfo(
          absl::StrCat("first failure  run ", runs_, ", ", model.spec->name, " ", fitting, " x ", length, ": ", FailureOf(result)));
    }
    run_.device().EmptyCache();
    return 0;
  }

  std::int64_t runs() const { return runs_; }
  std::int64_t failures() const { return failures_; }

 private:
  CheckRun& run_;
  Verdict& verdict_;
  std::int64_t runs_ = 0;
  std::int64_t failures_ = 0;
};

}  // namespace

void CheckFragmentation(CheckRun& run, Verdict& verdict) {
  constexpr int kMixed = 200;
  if (!verdict.RequireOk(run.Prepare(), "preparing") || !verdict.RequireOk(run.MarkAtRest(), "at rest")) return;
  const DeviceMemory before = run.at_rest();
  const TimePoint end = After(RealClock().Now(), run.options().time);
  std::mt19937_64 random(run.options().seed);
  std::uniform_int_distribution<std::int64_t> rows(1, std::min<std::int64_t>(16, run.options().max_rows));
  std::bernoulli_distribution encoder(0.1);  // most are of the model that is soon done
  ReservedRuns runs(run, verdict);

  const std::int64_t longest = run.options().longest;
  const std::int64_t first = runs.Run(run.encoder(), run.options().max_rows, longest);
  std::int64_t fewest = first;
  std::int64_t rounds = 0;
  // At least one, and then as many as the time allows.
  while (rounds < run.options().rounds && (rounds == 0 || RealClock().Now() < end)) {
    for (const std::int64_t length : LaunchDayLengths(kMixed, longest, random)) {
      const CheckedModel& model = encoder(random) ? run.encoder() : run.attention();
      runs.Run(model, rows(random), model.ladder.PaddedLength(model.ladder.Place(length)->bucket, length));
    }
    fewest = std::min(fewest, runs.Run(run.encoder(), run.options().max_rows, longest));
    ++rounds;
  }
  const auto peak = run.device().Memory();
  run.device().EmptyCache();
  const auto after = run.device().Memory();
  if (!verdict.RequireOk(peak.status(), "memory") || !verdict.RequireOk(after.status(), "memory")) return;

  verdict.Saw(absl::StrFormat("%d rounds of the largest, %d mixed, the largest (%d runs): out of memory %d", rounds, kMixed,
                              runs.runs(), runs.failures()));
  verdict.Saw(absl::StrFormat("the largest had %d rows of %d, then never fewer than %d", first, longest, fewest));
  verdict.Saw(absl::StrCat("most held ", ToString(peak->peak_held)));
  verdict.Saw(absl::StrFormat("at rest again %+d B allocated, %+d B held", after->allocated.count - before.allocated.count,
                              after->held.count - before.held.count));
  verdict.Require(first > 0, "not even the first batch ran");
  verdict.Require(runs.failures() == 0, "a batch that had its reservation failed");
  verdict.Require(fewest > 0, "the longest rows did not fit again");
  verdict.Require(after->allocated == before.allocated && after->held == before.held, "memory did not come back");
}

void CheckHardLimit(CheckRun& run, Verdict& verdict) {
  if (!verdict.RequireOk(run.Prepare(), "preparing") || !verdict.RequireOk(run.MarkAtRest(), "at rest")) return;
  const auto limit = run.HardLimit();
  if (!verdict.RequireOk(limit.status(), "the limit")) return;
  // Nobody plans these: the allocator alone must refuse what would pass the limit, and the device must be well after it.
  const CheckedModel& model = run.encoder();
  std::int64_t ran = 0;
  std::int64_t refused = 0;
  for (std::int64_t rows = 1; rows <= run.options().max_rows; rows = rows < 4 ? rows + 1 : rows + 4) {
    for (const std::int64_t some : {rows, std::int64_t{1}}) {
      const RunResult result =
          run.device().Run(*model.loaded, SampleBatch(*model.spec, {some, run.options().longest}, run.device(), kSampleSeed));
      if (std::holds_alternative<OutOfMemory>(result)) {
        ++refused;
        verdict.Require(some > 1, "one row does not fit");
        run.device().EmptyCache();
      } else {
        verdict.Require(std::holds_alternative<RunOutput>(result), FailureOf(result));
        ++ran;
      }
    }
  }
  const auto memory = run.device().Memory();
  if (!verdict.RequireOk(memory.status(), "memory")) return;
  verdict.Saw(absl::StrFormat("%d unplanned batches ran, %d were refused", ran, refused));
  verdict.Saw(absl::StrFormat("most held %s of %s allowed (%s)", ToString(memory->peak_held), ToString(*limit),
                              Percent(static_cast<double>(memory->peak_held.count) / static_cast<double>(limit->count))));
  verdict.Require(memory->peak_held <= *limit, "more was held than the hard limit allows");
  verdict.Require(refused > 0, "nothing came near the limit");
}

}  // namespace headroom
