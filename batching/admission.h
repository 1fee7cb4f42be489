// Whether a request may wait: predicted from what waits already, what runs, and how long batches take.
#pragma once

#include <absl/status/status.h>

#include <optional>
#include <vector>

#include "base/clock.h"
#include "batching/latency_model.h"
#include "batching/queue_load.h"
#include "batching/served_model.h"

namespace headroom {

// What waits and runs before a newcomer's rows may start.
struct Backlog {
  Load waiting = {};  // all of the model
  Load ahead = {};    // of the model, as urgent as the newcomer or more
  Load own = {};      // of the newcomer's caller; none where it is not known
  // Of the other models on its devices, each with as much as waits: they take turns with this one.
  std::vector<Duration> others = {};
  Duration running{0};  // what is left of running batches, all together
  int workers = 1;      // that serve the model
  int idle_workers = 0;
};

// How long work lasts on one worker.
Duration TimeOf(const Load& load, const LatencyModel::Line& line);

// How long until rows that come now start. While the model's own work is done, each other model has as much time as it wants, and
// no more than this one: they take turns.
//
//   wait = (running + own work + Σ min(other's work, own work)) ÷ workers         0 where a worker is idle and nothing waits
Duration PredictWait(const Backlog& backlog, const LatencyModel::Line& line);

// How long a newcomer may wait, from now.
struct Patience {
  Duration to_start = Duration::max();   // the client's own `timeout`, or the model's
  Duration to_answer = Duration::max();  // gRPC's deadline
  Duration to_wait = Duration::max();    // the server's own limit, where the client has none
};

struct Admission {
  enum class Decision {
    kAdmit,
    kTooLate,     // its time will be up before it could be answered
    kOverloaded,  // it would wait longer than the server lets anybody
    kOverShare,   // its caller has its share of what may wait
  };
  Decision decision = Decision::kAdmit;
  Duration wait{0};         // predicted
  Duration retry_after{0};  // where refused: when there should be room
};

// A caller may have waiting at most so many times what is left free, in time and in rows. However many callers push, each has the
// same share then and something stays free for one who comes seldom: dynamic thresholds (Choudhury and Hahne, 1998). A lone caller
// that pushes is left half of the queue.
inline constexpr double kShareOfFree = 1;

// A batch is run whole, and begins when the one before has ended: a client's time is held against half a run more than is foreseen.
//
// `run` is how long the newcomer's largest row takes at least, `rows` how many rows come and `most_rows` how many may wait;
// `caller_known` says whether `backlog.own` tells of one caller. Where a worker is idle and nothing waits nobody is refused: a
// latency that is believed too long would else never be corrected.
Admission Decide(const Backlog& backlog, const LatencyModel::Line& line, Duration run, const Patience& patience, bool caller_known,
                 std::int64_t rows, std::int64_t most_rows);

// When so many rows may be expected to have left a queue that holds `waiting`, for a refusal's retry-after.
Duration TimeToDrain(std::int64_t rows, const Load& waiting, Duration wait);

// What there is before a newcomer of this priority and caller.
Backlog BacklogOf(const ServedModel& model, const ModelSet& models, std::int64_t priority, CallerId caller, TimePoint now);

// A request that wants to wait for a model, as far as it is known: from its envelope alone, at first.
struct LoadAsk {
  std::int64_t rows = 1;
  Bytes bytes{0};
  std::int64_t priority = 0;  // the most urgent it may have
  CallerId caller = 0;
  std::optional<Placement> largest = {};  // its longest row's, once it is known
  TimePoint start_by = kForever;          // the client's timeout, or the model's
  TimePoint answer_by = kForever;         // gRPC's deadline
  Duration most_wait = Duration::max();
};

struct LoadRefusal {
  absl::Status status;  // for the client
  LoadReason reason = LoadReason::kQueue;
  Duration retry_after{0};  // negative: it need not come again
};

struct LoadAnswer {
  std::optional<LoadRefusal> refused;
  // When its rows must have started: by `start_by`, and so that the answer comes by `answer_by`, less what a batch with them takes.
  // But what is tried at once is tried.
  TimePoint start_by = kForever;
};

// Whether there is room and time for it now.
LoadAnswer CheckLoad(const ServedModel& model, const ModelSet& models, const LoadAsk& ask, TimePoint now);

}  // namespace headroom
