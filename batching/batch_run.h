// The run of a claimed batch: whole, and where that fails, in ever smaller parts until every row has its answer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "batching/batch_observer.h"
#include "batching/recovery.h"
#include "batching/served_model.h"

namespace headroom {

// Belongs to one thread. Every row of the claim is answered, or put back into its queue, when Run returns.
class BatchRun {
 public:
  // Everything passed by reference outlives the run. `started` is when the rows ceased to wait. `threads` are those that it is run
  // with; what is run again has no more than every run has.
  BatchRun(ServingDevice& device, const ServedModel& model, const ModelInstance& instance, BatchObserver& observer, Clock& clock,
           TimePoint started, ThreadShare threads = {})
      : device_(device),
        model_(model),
        instance_(instance),
        observer_(observer),
        clock_(clock),
        started_(started),
        threads_(std::move(threads)) {}

  // `reservation` is held until the last part has run, and given back before that part's answers go out, so that whoever reads the
  // figures after an answer finds them settled; then `memory_is_free` is called.
  void Run(Claim claim, Reservation reservation, const std::function<void()>& memory_is_free);

 private:
  // Rows that run together. The first is the whole batch.
  struct Part {
    std::vector<QueuedRow> rows;  // ascending in length
    BatchShape shape;
    BatchLimit limited_by = BatchLimit::kNone;
    bool alone = false;  // with the device to itself
  };

  // Enters the device, leaves out who is dead by then, and executes; none where nobody is left. Learns how long it took.
  std::optional<RunResult> RunPart(Part& part);
  // Collates, runs, checks and scatters. Whatever was needed for that is given back when it returns.
  RunResult Execute(const Part& part);
  // Counts the failure, learns from it, and says what next.
  NextTry AfterFailure(const Part& part, const RunResult& result);
  NextTry AfterNoMemory(const Part& part, const OutOfMemory& failed);
  void Retry(Part part, NextTry how);
  // Leaves out rows that nobody waits for any more, and those whose time was up before their first run could begin; false where
  // none is left.
  bool DropDeadRows(Part& part, TimePoint now);
  Part PartOf(std::vector<QueuedRow> rows) const;

  void Finish(Part part, const RunResult& result, NextTry next);
  void Succeed(const Part& part, const RunOutput& output);
  void WaitAgain(Part part);
  void Fail(const std::vector<QueuedRow>& rows, const absl::Status& status, Outcome outcome);

  ServingDevice& device_;
  const ServedModel& model_;
  const ModelInstance& instance_;
  BatchObserver& observer_;
  Clock& clock_;
  TimePoint started_;
  ThreadShare threads_;

  std::int64_t bucket_ = 0;
  Bytes reserved_{0};
  std::vector<Part> parts_;  // to be run, the next one last
  Duration collate_{0};      // of the part that ran last
  Duration scatter_{0};
};

}  // namespace headroom
