#include "test/gpu/traffic.h"

#include <algorithm>
#include <latch>

#include "runtime/sample_batch.h"

namespace headroom {

std::vector<std::int64_t> LaunchDayLengths(std::int64_t count, std::int64_t longest, std::mt19937_64& random) {
  const std::int64_t middle = longest / 4;
  std::discrete_distribution<int> kind({80, 15, 5});
  std::uniform_int_distribution<std::int64_t> shorter(std::min<std::int64_t>(5, middle), middle - 1);
  std::uniform_int_distribution<std::int64_t> longer(middle, longest);
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    const int drawn = kind(random);
    lengths.push_back(drawn == 0 ? shorter(random) : (drawn == 1 ? longer(random) : longest));
  }
  return lengths;
}

Ids RandomRow(std::int64_t length, std::int64_t vocabulary, std::mt19937_64& random) {
  std::uniform_int_distribution<std::int64_t> id(0, vocabulary - 1);
  Ids ids(static_cast<std::size_t>(length));
  for (std::int64_t& one : ids) one = id(random);
  return ids;
}

Traffic::Traffic(CheckRun& run, const CheckedModel& model, int workers) : run_(run) {
  std::vector<ModelInstance> instances;
  instances.push_back(model.InstanceOn(run.serving()));
  model_ = std::make_shared<const ServedModel>(model.spec, 1, std::move(instances));
  models_.Add(model_);
  const auto warm = std::make_shared<std::latch>(workers);
  for (int i = 0; i < workers; ++i) {
    batchers_.push_back(std::make_unique<Batcher>(run.serving(), models_, observer_, work_, RealClock()));
    threads_.emplace_back([this, warm, batcher = batchers_.back().get()](const std::stop_token& stop) {
      // A thread's first run takes its stream and a library's workspace.
      const std::int64_t shortest = model_->spec->sequence.buckets.front();
      static_cast<void>(run_.device().Run(*model_->instances.front().loaded,
                                          SampleBatch(*model_->spec, {1, shortest}, run_.device(), /*seed=*/1)));
      warm->count_down();
      batcher->Run(stop);
    });
  }
  warm->wait();
  ready_ = run.MarkAtRest();
}

Traffic::~Traffic() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

ToyRequest Traffic::Send(const Ids& row) {
  ToyRequest made = MakeToyRequest(model_->spec, model_->instances.front().ladder, {row}, {.arrived = RealClock().Now()});
  if (const absl::Status queued = model_->queue.Enqueue(made.request); !queued.ok()) {
    made.request->Abandon();
    made.answer->Give({queued, Outcome::kQueueFull, {}, {}, {}});
  }
  work_.Notify();
  return made;
}

void Answers::Count(const Reply& reply) {
  if (reply.status.ok()) {
    ++ok;
    return;
  }
  ++(reply.outcome == Outcome::kOverBudget ? refused : failed);
  if (first_failure.empty()) first_failure = std::string(reply.status.message());
}

std::int64_t LargestBatch(const std::vector<BatchReport>& batches) {
  std::int64_t most = 0;
  for (const BatchReport& batch : batches) most = std::max(most, batch.rows);
  return most;
}

void Pause(Duration time) {
  Mutex mutex;
  CondVar never;
  const TimePoint end = After(RealClock().Now(), time);
  MutexLock lock(mutex);
  while (RealClock().WaitUntil(mutex, never, end)) continue;
}

}  // namespace headroom
