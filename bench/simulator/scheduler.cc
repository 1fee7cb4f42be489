#include "bench/simulator/scheduler.h"

#include <algorithm>
#include <array>
#include <deque>
#include <unordered_map>
#include <utility>

#include "batching/batcher.h"

namespace headroom {
namespace {

constexpr std::size_t kFifoRows = 32;

struct Named {
  const char* name;
  Policy policy;
};
constexpr std::array<Named, 3> kPolicies = {{{"ours", Policy::kOurs}, {"fifo32", Policy::kFifo32}, {"single", Policy::kSingle}}};

bool FitsAlone(const ModelledDevice& device, std::int64_t length, Bytes budget) {
  const auto needs = device.memory().Peak({1, length});
  return needs.ok() && *needs <= budget;
}

// A request of one row each: what a worker does in batching/batcher.cc, without threads and tensors.
class OurScheduler final : public Scheduler {
 public:
  explicit OurScheduler(const SchedulerOptions& options)
      : spec_(std::make_shared<const ModelSpec>(options.spec)),
        device_(*options.device),
        ladder_(*spec_, device_.kind()),
        budget_(options.budget),
        latency_(device_.latency()),
        queue_({.max_rows = spec_->queue.max_rows}) {}

  // What waits when a simulation ends was answered by nobody.
  ~OurScheduler() override {
    for (const QueuedRow& row : queue_.Close()) row.request->RowDropped();
  }
  OurScheduler(const OurScheduler&) = delete;
  OurScheduler& operator=(const OurScheduler&) = delete;

  bool Enqueue(std::size_t row, std::int64_t length, TimePoint now) override {
    const auto placement = ladder_.Place(length);
    if (!placement.ok() || !FitsAlone(device_, ladder_.PaddedLength(placement->bucket, placement->kept_length), budget_))
      return false;
    Request::Parts parts;
    parts.spec = spec_;
    parts.client_length = length;
    parts.rows = {{length, *placement}};
    parts.arrived = now;
    const auto request = std::make_shared<Request>(std::move(parts));
    if (!queue_.Enqueue(request).ok()) {
      request->Abandon();
      return false;
    }
    numbers_[request.get()] = row;
    return true;
  }

  std::optional<SimulatedBatch> Claim(const SimulatedRoom& room, TimePoint now) override {
    headroom::Claim claim = ClaimNext(room, now);
    next_wake_ = claim.next_wake;
    if (claim.rows.empty()) return std::nullopt;
    SimulatedBatch batch;
    batch.shape = claim.batch.shape;
    batch.needs = claim.batch.needs;
    for (const QueuedRow& row : claim.rows) {
      batch.useful_tokens += row.row().placement.kept_length;
      batch.rows.push_back(numbers_.extract(row.request.get()).mapped());
    }
    batch.held = std::move(claim.rows);
    return batch;
  }

  void Finish(SimulatedBatch batch, Duration took) override {
    latency_.Observe(batch.shape, took);
    for (const QueuedRow& row : batch.held) row.request->RowSucceeded({});
  }

  TimePoint next_wake() const override { return next_wake_; }

 private:
  // The one place where the server's planning is called.
  headroom::Claim ClaimNext(const SimulatedRoom& room, TimePoint now) {
    const PlanLimits limits{
        .available = room.available,
        .budget = budget_,
        .idle_budget = budget_,
        .max_rows = spec_->largest_batch(),
        .max_delay = spec_->queue.max_delay,
        .max_overtaking = Batcher::kMaxOvertaking,
        .preferred_rows = spec_->queue.preferred_rows,
        .idle_workers = room.idle_workers,
    };
    return queue_.ClaimBatch(ladder_, limits, device_.memory(), latency_.times(), now);
  }

  const std::shared_ptr<const ModelSpec> spec_;
  const ModelledDevice& device_;
  const BucketLadder ladder_;
  const Bytes budget_;
  LatencyModel latency_;  // as the server learns it
  RequestQueue queue_;
  std::unordered_map<const Request*, std::size_t> numbers_;  // of those that wait
  TimePoint next_wake_ = kForever;
};

// Rows as they come, so many at once, padded to the longest.
class FirstComeScheduler final : public Scheduler {
 public:
  FirstComeScheduler(const SchedulerOptions& options, std::size_t most_rows)
      : device_(*options.device),
        ladder_(options.spec, device_.kind()),
        budget_(options.budget),
        most_waiting_(static_cast<std::size_t>(options.spec.queue.max_rows)),
        most_rows_(most_rows) {}

  bool Enqueue(std::size_t row, std::int64_t length, TimePoint) override {
    const auto placement = ladder_.Place(length);
    if (!placement.ok() || waiting_.size() >= most_waiting_ || !FitsAlone(device_, placement->kept_length, budget_)) return false;
    waiting_.push_back({row, placement->kept_length});
    return true;
  }

  std::optional<SimulatedBatch> Claim(const SimulatedRoom& room, TimePoint) override {
    SimulatedBatch batch;
    for (const Waiting& next : waiting_) {
      const BatchShape grown{batch.shape.rows + 1, std::max(batch.shape.length, next.length)};
      const auto needs = device_.memory().Peak(grown);
      if (batch.rows.size() == most_rows_ || !needs.ok() || *needs > room.available) break;
      batch.rows.push_back(next.row);
      batch.shape = grown;
      batch.needs = *needs;
      batch.useful_tokens += next.length;
    }
    if (batch.rows.empty()) return std::nullopt;
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(batch.rows.size()));
    return batch;
  }

  void Finish(SimulatedBatch, Duration) override {}

 private:
  struct Waiting {
    std::size_t row = 0;
    std::int64_t length = 0;
  };

  const ModelledDevice& device_;
  const BucketLadder ladder_;  // only for what is too long, or cut
  const Bytes budget_;
  const std::size_t most_waiting_;
  const std::size_t most_rows_;
  std::deque<Waiting> waiting_;
};

}  // namespace

std::optional<Policy> PolicyOf(const std::string& name) {
  const auto found = std::find_if(kPolicies.begin(), kPolicies.end(), [&](const Named& named) { return named.name == name; });
  if (found == kPolicies.end()) return std::nullopt;
  return found->policy;
}

const char* NameOf(Policy policy) {
  return std::find_if(kPolicies.begin(), kPolicies.end(), [&](const Named& named) { return named.policy == policy; })->name;
}

std::unique_ptr<Scheduler> MakeScheduler(Policy policy, const SchedulerOptions& options) {
  switch (policy) {
    case Policy::kFifo32: return std::make_unique<FirstComeScheduler>(options, kFifoRows);
    case Policy::kSingle: return std::make_unique<FirstComeScheduler>(options, 1);
    case Policy::kOurs: break;
  }
  return std::make_unique<OurScheduler>(options);
}

}  // namespace headroom
