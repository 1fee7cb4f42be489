#include "bench/simulator/simulation.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace headroom {
namespace {

constexpr TimePoint kStart{};

class Simulation {
 public:
  Simulation(const SimulatedServer& server, const std::vector<SimulatedRow>& rows, std::size_t warm_up, std::size_t in_flight)
      : server_(server),
        rows_(rows),
        warm_up_(warm_up),
        in_flight_(in_flight),
        scheduler_(MakeScheduler(server.policy, server.scheduling)),
        noise_(server.noise_seed),
        arrived_(rows.size()) {}

  SimulatedRun Run() {
    for (std::size_t i = 0; i < in_flight_; ++i) Admit(kStart);
    StartBatches(kStart);
    while (true) {
      const TimePoint now = NextEvent();
      if (now == kForever) break;
      // Who ends at this moment makes room for who comes at it.
      const std::size_t ended = EndBatches(now);
      if (in_flight_ > 0) {
        for (std::size_t i = 0; i < ended; ++i) Admit(now);
      } else {
        while (next_ < rows_.size() && kStart + rows_[next_].arrives <= now) Admit(now);
      }
      StartBatches(now);
    }
    return Summed();
  }

 private:
  struct Running {
    SimulatedBatch batch;
    TimePoint began;
    TimePoint ends;
  };

  TimePoint NextEvent() const {
    TimePoint next = kForever;
    if (in_flight_ == 0 && next_ < rows_.size()) next = kStart + rows_[next_].arrives;
    for (const Running& running : running_) next = std::min(next, running.ends);
    if (static_cast<int>(running_.size()) < server_.workers) next = std::min(next, std::max(wake_, now_));
    return next;
  }

  void Admit(TimePoint now) {
    // One that is refused makes room for the next at once.
    while (next_ < rows_.size()) {
      const std::size_t row = next_++;
      arrived_[row] = in_flight_ > 0 ? now : kStart + rows_[row].arrives;
      if (scheduler_->Enqueue(row, rows_[row].length, arrived_[row])) return;
      if (in_flight_ == 0) return;
    }
  }

  // How many rows were answered.
  std::size_t EndBatches(TimePoint now) {
    std::size_t rows = 0;
    for (auto running = running_.begin(); running != running_.end();) {
      if (running->ends > now) {
        ++running;
        continue;
      }
      for (const std::size_t row : running->batch.rows) {
        if (row < warm_up_) continue;
        run_.latencies.push_back(Seconds(running->ends - arrived_[row]));
        waited_ += Seconds(running->began - arrived_[row]);
      }
      rows += running->batch.rows.size();
      reserved_ -= running->batch.needs;
      last_answer_ = std::max(last_answer_, running->ends);
      scheduler_->Finish(std::move(running->batch), running->ends - running->began);
      running = running_.erase(running);
    }
    run_.answered += rows;
    return rows;
  }

  void StartBatches(TimePoint now) {
    now_ = now;
    wake_ = kForever;
    while (static_cast<int>(running_.size()) < server_.workers) {
      const int idle = server_.workers - static_cast<int>(running_.size());
      auto batch = scheduler_->Claim({server_.scheduling.budget - reserved_, idle}, now);
      if (!batch) {
        // A wake that is over has changed nothing: there will be another event.
        if (scheduler_->next_wake() > now) wake_ = scheduler_->next_wake();
        break;
      }
      const Duration takes = server_.overhead + WithNoise(server_.scheduling.device->Takes(batch->shape));
      ++run_.batches;
      busy_ += Seconds(takes);
      useful_ += static_cast<double>(batch->useful_tokens);
      computed_ += static_cast<double>(batch->shape.rows) * static_cast<double>(batch->shape.length);
      reserved_ += batch->needs;
      running_.push_back({*std::move(batch), now, now + takes});
    }
  }

  Duration WithNoise(Duration takes) {
    if (server_.noise <= 0) return takes;
    const double factor = std::exp(server_.noise * std::normal_distribution<double>()(noise_));
    return FromSeconds(Seconds(takes) * factor);
  }

  SimulatedRun Summed() {
    std::sort(run_.latencies.begin(), run_.latencies.end());
    run_.refused = next_ - run_.answered;
    const TimePoint first = rows_.empty() || in_flight_ > 0 ? kStart : kStart + rows_.front().arrives;
    run_.seconds = Seconds(last_answer_ - first);
    if (run_.seconds > 0) {
      run_.rows_per_second = static_cast<double>(run_.answered) / run_.seconds;
      run_.utilisation = busy_ / run_.seconds / server_.workers;
    }
    if (computed_ > 0) run_.useful_share = useful_ / computed_;
    if (!run_.latencies.empty()) run_.mean_wait_seconds = waited_ / static_cast<double>(run_.latencies.size());
    return std::move(run_);
  }

  const SimulatedServer& server_;
  const std::vector<SimulatedRow>& rows_;
  const std::size_t warm_up_;
  const std::size_t in_flight_;  // 0: open loop
  const std::unique_ptr<Scheduler> scheduler_;
  std::mt19937_64 noise_;

  std::size_t next_ = 0;  // row to come
  std::vector<TimePoint> arrived_;
  std::vector<Running> running_;
  Bytes reserved_{0};
  TimePoint now_ = kStart;
  TimePoint wake_ = kForever;
  TimePoint last_answer_ = kStart;
  double waited_ = 0;
  double busy_ = 0;
  double useful_ = 0;
  double computed_ = 0;
  SimulatedRun run_;
};

}  // namespace

double SimulatedRun::LatencyAt(double quantile) const {
  if (latencies.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(quantile * static_cast<double>(latencies.size())));
  return latencies[std::clamp<std::size_t>(rank, 1, latencies.size()) - 1];
}

SimulatedRun Simulate(const SimulatedServer& server, const std::vector<SimulatedRow>& rows, std::size_t warm_up) {
  return Simulation(server, rows, warm_up, 0).Run();
}

SimulatedRun Saturate(const SimulatedServer& server, const std::vector<SimulatedRow>& rows, std::size_t in_flight) {
  return Simulation(server, rows, 0, in_flight).Run();
}

double HighestRate(double from, const std::function<bool(double)>& keeps) {
  double low = from;
  while (!keeps(low)) {
    low /= 2;
    if (low < from / 1024) return 0;
  }
  double high = 2 * low;
  while (keeps(high)) {
    low = high;
    high *= 2;
    if (high > from * (std::uint64_t{1} << 40)) return low;  // nothing is too much
  }
  while (high > 1.01 * low) {
    const double middle = std::sqrt(low * high);
    (keeps(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace headroom
