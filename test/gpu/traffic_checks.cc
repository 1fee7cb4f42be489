// Rows through queue, planner, budget and workers, under memory that is short or is taken away.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "runtime/sample_batch.h"
#include "test/gpu/checks.h"
#include "test/gpu/traffic.h"

namespace headroom {
namespace {

constexpr std::uint64_t kSampleSeed = 5;
// What batching, padding and other kernels may change in numbers of a vector of length 1.
constexpr double kSameAnswer = 1e-3;

int WorkersFor(const Device& device) { return device.kind() == DeviceKind::kCpu ? 2 : 1; }

// The encoder's answer to one row alone and unpadded.
absl::StatusOr<std::vector<float>> AnswerAlone(CheckRun& run, const Ids& row) {
  const CheckedModel& model = run.encoder();
  PaddedBatch batch = SampleBatch(*model.spec, {1, static_cast<std::int64_t>(row.size())}, run.device(), kSampleSeed);
  std::memcpy(batch.inputs.front().data.get(), row.data(), row.size() * sizeof row.front());
  const RunResult result = run.device().Run(*model.loaded, batch);
  const auto* output = std::get_if<RunOutput>(&result);
  if (output == nullptr) return absl::InternalError(FailureOf(result));
  const HostTensor& answer = output->outputs.front();
  std::vector<float> numbers(static_cast<std::size_t>(answer.elements()));
  std::memcpy(numbers.data(), answer.data.get(), static_cast<std::size_t>(answer.size().count));
  return numbers;
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    // Not a number is not the same either.
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    most = std::isnan(difference) ? INFINITY : std::max(most, difference);
  }
  return most;
}

struct Sent {
  Ids row;
  ToyRequest request;
};

// Rows that were answered together with others against the same rows alone.
void CompareWithAlone(CheckRun& run, const std::vector<Sent>& sent, Verdict& verdict) {
  if (!run.device().computes()) return verdict.Saw("answers not compared (dry)");
  constexpr std::size_t kCompared = 16;
  double most = 0;
  for (std::size_t i = 0; i < std::min(kCompared, sent.size()); ++i) {
    const Sent& one = sent[i * sent.size() / std::min(kCompared, sent.size())];
    if (!one.request.answer->status().ok()) continue;
    const auto alone = AnswerAlone(run, one.row);
    if (!verdict.RequireOk(alone.status(), "a row alone")) return;
    most = std::max(most, LargestDifference(*alone, one.request.answer->Floats()));
  }
  verdict.Saw(absl::StrFormat("as alone but for %.1e", most));
  verdict.Require(most <= kSameAnswer, "answers depend on the batch");
}

// Keeps some rows under way until it is stopped, and counts the answers.
class SteadyTraffic {
 public:
  SteadyTraffic(const CheckOptions& options, Traffic& traffic)
      : traffic_(traffic), at_once_(4 * static_cast<std::size_t>(options.max_rows)) {
    std::mt19937_64 random(options.seed);
    for (const std::int64_t length : LaunchDayLengths(256, options.longest, random)) {
      rows_.push_back(RandomRow(length, options.vocabulary, random));
    }
  }

  // Until `done` says so.
  void RunUntil(const std::function<bool()>& done) {
    std::size_t next = 0;
    while (!done()) {
      while (waiting_.size() < at_once_) waiting_.push_back(traffic_.Send(rows_[next++ % rows_.size()]));
      Settle(at_once_ / 2);
    }
    Settle(0);
  }

  const Answers& answers() const { return answers_; }

 private:
  void Settle(std::size_t left) {
    while (waiting_.size() > left) {
      answers_.Count(waiting_.front().answer->Await());
      waiting_.pop_front();
    }
  }

  Traffic& traffic_;
  const std::size_t at_once_;
  std::vector<Ids> rows_;
  std::deque<ToyRequest> waiting_;
  Answers answers_;
};

// Takes memory past every budget, as code beside the batches would, and gives it back.
class Hog {
 public:
  // A piece is as large as its file, but for the code in it.
  explicit Hog(CheckRun& run) : run_(run), piece_{static_cast<std::int64_t>(std::filesystem::file_size(run.FileOf("ballast")))} {
    spec_.name = "ballast";
    spec_.max_batch_rows = 1;
    InputSpec& ids = spec_.inputs.emplace_back();
    ids.name = "input_ids";
    ids.type = DataType::kInt64;
    ids.dims = {kSequenceAxis};
    ids.role = InputRole::kTokens;
    spec_.outputs = {{.name = "sum", .type = DataType::kFp32, .dims = {1024}}};
  }

  // Takes until `wanted` is taken or refused.
  void Take(Bytes wanted) {
    Bytes taken{0};
    while (taken < wanted) {
      auto piece = run_.device().Load(run_.FileOf(spec_.name), spec_);
      if (!piece.ok()) {
        if (!absl::IsResourceExhausted(piece.status())) error_ = std::string(piece.status().message());
        break;
      }
      pieces_.push_back(*std::move(piece));
      taken += piece_;
    }
    most_ = std::max(most_, taken);
  }
  void GiveBack() { pieces_.clear(); }

  Bytes most() const { return most_; }
  const std::string& error() const { return error_; }

 private:
  CheckRun& run_;
  const Bytes piece_;
  ModelSpec spec_;
  std::vector<std::shared_ptr<const LoadedModel>> pieces_;
  Bytes most_{0};
  std::string error_;
};

void SayAnswers(const Answers& answers, const Traffic& traffic, Verdict& verdict) {
  const auto batches = traffic.observer().batches();
  verdict.Saw(absl::StrFormat("%d rows answered in %d batches of up to %d", answers.ok, batches.size(), LargestBatch(batches)));
  verdict.Saw(absl::StrFormat("refused %d, failed %d", answers.refused, answers.failed));
  const auto under = std::count_if(batches.begin(), batches.end(), [](const BatchReport& batch) { return batch.under_estimated; });
  verdict.Saw(absl::StrFormat("under-estimated %d", under));
  verdict.Require(answers.ok > 0, "nothing was answered");
  verdict.Require(answers.refused + answers.failed == 0, absl::StrCat("not answered: ", answers.first_failure));
  verdict.Require(traffic.observer().lost().empty(), "the device was lost");
}

}  // namespace

void CheckBurst(CheckRun& run, Verdict& verdict) {
  if (!verdict.RequireOk(run.Prepare(), "preparing")) return;
  const CheckedModel& model = run.encoder();
  const BatchShape naive{run.options().max_rows, run.options().longest};
  const RunResult padded = run.device().Run(*model.loaded, SampleBatch(*model.spec, naive, run.device(), kSampleSeed));
  run.device().EmptyCache();
  verdict.Saw(absl::StrFormat("naive %d x %d: %s", naive.rows, naive.length,
                              std::holds_alternative<RunOutput>(padded) ? "ran" : FailureOf(padded)));
  verdict.Require(std::holds_alternative<OutOfMemory>(padded), "the limit does not make naive batching fail");

  Traffic traffic(run, model, WorkersFor(run.device()));
  if (!verdict.RequireOk(traffic.ready(), "at rest")) return;
  const auto limit = run.HardLimit();
  if (!verdict.RequireOk(limit.status(), "the limit")) return;
  std::mt19937_64 random(run.options().seed);
  const TimePoint start = RealClock().Now();
  std::vector<Sent> sent;
  Answers answers;
  for (const std::int64_t length : LaunchDayLengths(run.options().burst_rows, naive.length, random)) {
    Ids row = RandomRow(length, run.options().vocabulary, random);
    ToyRequest request = traffic.Send(row);
    sent.push_back({std::move(row), std::move(request)});
  }
  for (const Sent& one : sent) answers.Count(one.request.answer->Await());
  const double took = Seconds(RealClock().Now() - start);
  const auto memory = run.device().Memory();
  const auto budget = run.budget().Snapshot();
  if (!verdict.RequireOk(memory.status(), "memory") || !verdict.RequireOk(budget.status(), "memory")) return;

  SayAnswers(answers, traffic, verdict);
  const auto events = traffic.observer().out_of_memory().size();
  verdict.Saw(absl::StrFormat("out of memory %d", events));
  verdict.Saw(absl::StrFormat("batches held %s of a budget of %s", ToString(budget->peak), ToString(budget->budget)));
  if (run.device().computes()) verdict.Saw(absl::StrFormat("%.0f rows/s", static_cast<double>(answers.ok) / took));
  verdict.Require(events == 0, "a planned batch ran out of memory");
  verdict.Require(memory->peak_held <= *limit, "more was held than the hard limit allows");
  CompareWithAlone(run, sent, verdict);
}

void CheckRecovery(CheckRun& run, Verdict& verdict) {
  if (!verdict.RequireOk(run.Prepare(), "preparing")) return;
  Traffic traffic(run, run.encoder(), WorkersFor(run.device()));
  if (!verdict.RequireOk(traffic.ready(), "at rest")) return;
  const auto budget = run.budget().Snapshot();
  if (!verdict.RequireOk(budget.status(), "the budget")) return;
  // All of what batches plan with but two of the longest rows.
  const Bytes wanted = budget->budget - run.encoder().Needs({2, run.options().longest});

  constexpr int kCycles = 3;
  std::atomic<bool> over = false;
  Hog hog(run);
  SteadyTraffic steady(run.options(), traffic);
  {
    std::jthread hogging([&] {
      for (int cycle = 0; cycle < kCycles; ++cycle) {
        const std::size_t before = traffic.observer().out_of_memory().size();
        hog.Take(wanted);
        // Until it has been felt, or will not be.
        for (int i = 0; i < 100 && traffic.observer().out_of_memory().size() == before; ++i) Pause(std::chrono::milliseconds(10));
        Pause(std::chrono::milliseconds(100));
        hog.GiveBack();
        Pause(std::chrono::milliseconds(100));
      }
      over = true;
    });
    steady.RunUntil([&] { return over.load(); });
  }
  SayAnswers(steady.answers(), traffic, verdict);
  const auto events = traffic.observer().out_of_memory().size();
  verdict.Saw(
      absl::StrFormat("a hog took up to %s of a budget of %s %d times", ToString(hog.most()), ToString(budget->budget), kCycles));
  verdict.Saw(absl::StrFormat("out of memory %d, all survived", events));
  verdict.Require(hog.error().empty(), absl::StrCat("the hog: ", hog.error()));
  verdict.Require(events > 0, "the hog was not felt");
  run.device().EmptyCache();
  const auto after = run.budget().Snapshot();
  verdict.Require(after.ok() && after->budget == budget->budget && after->reserved == Bytes{0}, "the budget did not come back");
}

void CheckNeighbour(CheckRun& run, Verdict& verdict) {
  if (run.device().kind() == DeviceKind::kCpu) return verdict.Skip("needs a card that two processes share");
  if (!verdict.RequireOk(run.Prepare(), "preparing")) return;
  Traffic traffic(run, run.encoder(), WorkersFor(run.device()));
  if (!verdict.RequireOk(traffic.ready(), "at rest")) return;
  SteadyTraffic steady(run.options(), traffic);
  std::printf("serving\n");
  std::fflush(stdout);
  const TimePoint end = After(RealClock().Now(), run.options().time);
  Bytes least{run.at_rest().total};
  Bytes most{0};
  steady.RunUntil([&] {
    if (const auto memory = run.device().Memory(); memory.ok()) {
      least = std::min(least, memory->free);
      most = std::max(most, memory->free);
    }
    return RealClock().Now() >= end;
  });
  SayAnswers(steady.answers(), traffic, verdict);
  verdict.Saw(absl::StrFormat("free between %s and %s", ToString(least), ToString(most)));
  verdict.Saw(absl::StrFormat("out of memory %d", traffic.observer().out_of_memory().size()));
  verdict.Require(Scale(least, 2) < most, "the neighbour was not felt");
}

}  // namespace headroom
