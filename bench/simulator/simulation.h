// A server on a virtual clock: workers that take batches from a scheduler and run them on a modelled device. The same input gives
// the same output, whatever the machine.
//
// Modelled: arrivals, waiting, what is batched with what, padding, the memory that running batches hold together, workers that run
// side by side, and for each batch its run and a fixed overhead. Not modelled: decoding and the wire, threads that share cores,
// admission by deadline, out of memory and retries, several models, requests of more than one row.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "bench/simulator/scheduler.h"
#include "bench/simulator/workload.h"

namespace headroom {

struct SimulatedServer {
  Policy policy = Policy::kOurs;
  SchedulerOptions scheduling;
  int workers = 1;
  Duration overhead{0};  // that a worker spends on each batch beside its run
  // Runs take this share more or less than modelled: the standard deviation of the logarithm of a factor.
  double noise = 0;
  std::uint64_t noise_seed = 1;
};

struct SimulatedRun {
  std::size_t answered = 0;
  std::size_t refused = 0;  // too long, too large, or the queue was full
  std::size_t batches = 0;
  double seconds = 0;             // from the first arrival to the last answer
  double rows_per_second = 0;     // answered
  double useful_share = 0;        // tokens of rows ÷ tokens computed
  double utilisation = 0;         // of the workers' time
  double mean_wait_seconds = 0;   // of a row, until its batch began
  std::vector<double> latencies;  // seconds, ascending, of the answered rows beyond the warm-up

  // The least latency that the share `quantile` does not exceed; 0 where there is none.
  double LatencyAt(double quantile) const;
};

// Open loop: rows come when they come. `rows` ascend in time; the first `warm_up` of them count for no latency and no wait.
SimulatedRun Simulate(const SimulatedServer& server, const std::vector<SimulatedRow>& rows, std::size_t warm_up);

// Closed loop: `in_flight` rows are always inside, of the lengths of `rows` in turn; their times do not count. What it can do.
SimulatedRun Saturate(const SimulatedServer& server, const std::vector<SimulatedRow>& rows, std::size_t in_flight);

// The highest rate, to within 1 %, at which `keeps` holds, by doubling from `from` > 0 and halving the gap; 0 where it does not
// even hold at `from` ÷ 1024. As if what holds at a rate holds at all lower ones.
double HighestRate(double from, const std::function<bool(double rows_per_second)>& keeps);

}  // namespace headroom
