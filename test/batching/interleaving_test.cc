// Many workers and models on one device, interleaved at random: whatever the order, the budget is kept and every row answered.
//
// Workers are threads, of which one at a time goes from one yield point to the next: before a turn, with a claimed batch before it
// runs, and in the middle of the run, where it holds its memory. The director, this test's own thread, chooses who goes, lets
// requests come, moves the time, makes runs fail, and lets a neighbour come and go. A worker that comes to no yield point waits for
// another one (for the device to itself); it goes on by itself when it may.
#include <sched.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <random>
#include <thread>

#include "test/fakes/toy_serving.h"

namespace headroom {
namespace {

using std::chrono::milliseconds;

class Stage {
 public:
  explicit Stage(std::size_t workers) : at_yield_(workers, false), may_go_(workers, false) {}

  // Of a worker: waits for its next turn.
  void Yield(std::size_t worker) {
    MutexLock lock(mutex_);
    at_yield_[worker] = true;
    changed_.NotifyAll();
    while (!may_go_[worker] && !ending_) changed_.Wait(mutex_);
    may_go_[worker] = false;
    at_yield_[worker] = false;
  }

  // Of the director: a random worker at a yield point goes on to its next one; nothing where all wait for each other.
  void LetOneGo(std::mt19937_64& random) {
    MutexLock lock(mutex_);
    std::vector<std::size_t> waiting;
    for (std::size_t w = 0; w < at_yield_.size(); ++w) {
      if (at_yield_[w]) waiting.push_back(w);
    }
    if (waiting.empty()) {
      RealClock().WaitUntil(mutex_, changed_, RealClock().Now() + milliseconds(1));
      return;
    }
    const std::size_t chosen = waiting[random() % waiting.size()];
    may_go_[chosen] = true;
    at_yield_[chosen] = false;
    changed_.NotifyAll();
    const TimePoint patience = RealClock().Now() + milliseconds(2);
    while (!at_yield_[chosen]) {
      if (!RealClock().WaitUntil(mutex_, changed_, patience)) return;  // it waits for another
    }
  }

  void AwaitAll() {
    MutexLock lock(mutex_);
    while (std::find(at_yield_.begin(), at_yield_.end(), false) != at_yield_.end()) changed_.Wait(mutex_);
  }
  // From now on nobody waits here.
  void End() {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<bool> at_yield_ GUARDED_BY(mutex_);
  std::deque<bool> may_go_ GUARDED_BY(mutex_);
  bool ending_ GUARDED_BY(mutex_) = false;
};

constexpr std::size_t kWorkers = 3;
thread_local std::size_t this_worker = 0;

ModelSpec Short(const std::string& name, std::int64_t priority_levels) {
  ModelSpec spec = ToySpec(name);
  spec.max_batch_rows = 4;
  spec.sequence.buckets = {4, 8, 16};
  spec.queue.priority_levels = priority_levels;
  return spec;
}

// A row of 16 takes 16 KiB and a batch 8 more: the budget of about 90 KiB holds a batch of four, and little beside it.
FakeDevice::Options Tight() {
  FakeDevice::Options options;
  options.total = KiB(112);
  options.weights = {0};
  options.peak = [](BatchShape shape) { return KiB(8 + shape.rows * shape.length); };
  return options;
}

struct Faults {
  bool out_of_memory = false;
  bool model_errors = false;
  bool neighbour = false;
  double bias = 1;
};

class Interleaving {
 public:
  Interleaving(std::uint64_t seed, Faults faults) : random_(seed), faults_(faults), serving_(Tight()), stage_(kWorkers) {
    models_ = {serving_.Serve(Short("P", 0), {}, faults.bias), serving_.Serve(Short("Q", 3), {}, faults.bias)};
    serving_.device().fail_run = [this](const PaddedBatch&) -> std::optional<FakeDevice::Failure> {
      stage_.Yield(this_worker);
      const int fault = fault_.exchange(0);
      if (fault == 1) return OutOfMemory{};
      if (fault == 2) return ModelError{"boom"};
      return std::nullopt;
    };
    serving_.device().during_run = [this](const PaddedBatch&) {
      CheckBudget();
      stage_.Yield(this_worker);
    };
    for (std::size_t w = 0; w < kWorkers; ++w) {
      workers_.emplace_back([this, w] {
        this_worker = w;
        Batcher batcher = serving_.Worker();
        while (true) {
          stage_.Yield(w);
          if (ending_) return;
          batcher.Step();
        }
      });
    }
    stage_.AwaitAll();
  }

  ~Interleaving() {
    ending_ = true;
    stage_.End();
    workers_.clear();
    for (const auto& model : models_) {
      for (const QueuedRow& row : model->queue.Close()) row.request->RowDropped();
    }
  }
  Interleaving(const Interleaving&) = delete;
  Interleaving& operator=(const Interleaving&) = delete;

  // From the arrival of a few requests to the answer of the last. Empty where all went well.
  std::string RunSchedule() {
    constexpr int kMostTurns = 5000;
    std::vector<ToyRequest> asked;
    std::size_t to_come = 2 + random_() % 6;
    for (int turn = 0; turn < kMostTurns; ++turn) {
      const auto action = random_() % 16;
      if (to_come > 0 && action < 5) {
        asked.push_back(AskAnything());
        --to_come;
      } else if (action == 5) {
        serving_.clock.Advance(milliseconds(random_() % 200));
      } else if (action == 6 && !asked.empty() && random_() % 4 == 0) {
        asked[random_() % asked.size()].request->Cancel();
      } else if (action == 7 && random_() % 4 == 0) {
        MakeTrouble();
      } else {
        stage_.LetOneGo(random_);
      }
      if (faults_.neighbour && turn % 64 == 63) serving_.device().SetNeighbour({0});  // it does not stay for ever
      const bool answered = std::all_of(asked.begin(), asked.end(), [](const ToyRequest& toy) { return toy.answer->given(); });
      if (to_come == 0 && answered) return Verdict(asked);
    }
    std::string state = "a row waits for ever:";
    for (const auto& model : models_) {
      const auto rows = model->queue.Close();
      state += " " + std::to_string(rows.size()) + " rows of " + model->spec->name;
      for (const QueuedRow& row : rows) {
        state += " (length " + std::to_string(row.row().length) + (row.request->gone() ? ", gone" : "") + ")";
        row.request->RowDropped();
      }
    }
    const BudgetSnapshot memory = serving_.budget().Snapshot().value();
    return state + ", reserved " + std::to_string(memory.reserved.count) + " of " + std::to_string(memory.budget.count) + ", " +
           std::to_string(serving_.serving_device().gate.running()) + " run";
  }

  std::size_t out_of_memory() const { return serving_.observer.out_of_memory().size(); }

 private:
  ToyRequest AskAnything() {
    std::vector<Ids> rows;
    const std::size_t count = 1 + random_() % 4;
    for (std::size_t i = 0; i < count; ++i) rows.push_back(Row(1 + static_cast<std::int64_t>(random_() % 16)));
    ToyRequestOptions options;
    options.priority = static_cast<std::int64_t>(random_() % 3);
    if (random_() % 8 == 0) options.deadline = serving_.clock.Now() + milliseconds(random_() % 300);
    return serving_.Ask(*models_[random_() % models_.size()], rows, options);
  }

  void MakeTrouble() {
    if (faults_.out_of_memory) fault_ = 1;
    if (faults_.model_errors && random_() % 2 == 0) fault_ = 2;
    if (faults_.neighbour) serving_.device().SetNeighbour(KiB(static_cast<std::int64_t>(random_() % 112)));
  }

  // A neighbour that comes leaves reservations standing that were made before.
  void CheckBudget() {
    const BudgetSnapshot memory = serving_.budget().Snapshot().value();
    if (memory.reserved > memory.budget && !faults_.neighbour) overcommitted_ = true;
  }

  std::string Verdict(const std::vector<ToyRequest>& asked) {
    stage_.AwaitAll();
    if (overcommitted_) return "more was reserved than the budget";
    if (serving_.budget().Snapshot().value().reserved != Bytes{0}) return "a reservation was not given back";
    for (const auto& model : models_) {
      if (model->queue.rows_waiting() != 0) return "a row is left in a queue";
    }
    for (const ToyRequest& toy : asked) {
      if (toy.answer->times() != 1) return "a request was answered more than once";
      const Outcome outcome = toy.answer->outcome();
      if (outcome == Outcome::kOverBudget && !faults_.out_of_memory && faults_.bias == 1) return "a row that fits was refused";
      if (outcome == Outcome::kFailed && !faults_.model_errors) return "a row failed without a reason";
      if (outcome == Outcome::kUnavailable) return "a row was turned away";
    }
    if (out_of_memory() > 0 && !faults_.out_of_memory && !faults_.neighbour && faults_.bias == 1) return "memory ran out";
    return "";
  }

  std::mt19937_64 random_;
  const Faults faults_;
  ToyServing serving_;
  std::vector<std::shared_ptr<const ServedModel>> models_;
  Stage stage_;
  std::atomic<int> fault_ = 0;
  std::atomic<bool> overcommitted_ = false;
  std::atomic<bool> ending_ = false;
  std::vector<std::jthread> workers_;
};

// Of each of the four kinds. Sanitizers make a schedule some twenty times slower.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kSchedules = 2000;
#else
constexpr int kSchedules = 26000;
#endif
constexpr int kSchedulesOfOneSeed = 2000;

// Keeps the threads of a test on one processor: they take turns, and handing over on one is much cheaper than between two.
class OneProcessor {
 public:
  OneProcessor() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(std::max(0, sched_getcpu())), &one);
    sched_setaffinity(0, sizeof one, &one);  // where it is refused the test takes longer
  }
  ~OneProcessor() { sched_setaffinity(0, sizeof before_, &before_); }
  OneProcessor(const OneProcessor&) = delete;
  OneProcessor& operator=(const OneProcessor&) = delete;

 private:
  cpu_set_t before_{};
};

void RunSchedules(Faults faults) {
  const OneProcessor pinned;
  const std::uint64_t first = std::random_device{}();
  std::cout << "interleavings: seeds " << first << " to "
            << first + static_cast<std::uint64_t>(kSchedules / kSchedulesOfOneSeed - 1) << '\n';
  for (int run = 0; run < kSchedules / kSchedulesOfOneSeed; ++run) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(run);
    Interleaving interleaving(seed, faults);
    for (int i = 0; i < kSchedulesOfOneSeed; ++i) {
      const std::string fault = interleaving.RunSchedule();
      if (fault.empty()) continue;
      FAIL("seed " << seed << ", schedule " << i << ": " << fault);
    }
  }
}

TEST_CASE("interleaved: the budget is kept, memory never runs out, every row is answered once", "[interleaving][property]") {
  RunSchedules({});
}
TEST_CASE("interleaved with out of memory and model errors: every row is answered once", "[interleaving][property]") {
  RunSchedules({.out_of_memory = true, .model_errors = true});
}
TEST_CASE("interleaved with a neighbour that comes and goes: no row is refused, every row is answered once",
          "[interleaving][property]") {
  RunSchedules({.neighbour = true});
}
TEST_CASE("interleaved with an estimator that is short by 30 %: every row is answered once", "[interleaving][property]") {
  RunSchedules({.bias = 0.7});
}

}  // namespace
}  // namespace headroom
