// One inference request under way, cut into rows; it finishes exactly once, when its last row has.
#pragma once

#include <absl/status/status.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "batching/batch_observer.h"
#include "batching/bucket_ladder.h"
#include "batching/queue_load.h"
#include "runtime/model_spec.h"

namespace headroom {

// One input as it came: dense, [rows,] dims, the sequence axis as long as the client made it.
struct RequestInput {
  const std::byte* data = nullptr;  // null where the client left it out
};

// What a row's batch was like.
struct RowReport {
  std::int64_t batch_rows = 0;
  std::int64_t bucket = 0;
  std::int64_t padded_length = 0;
  Duration queue{0};
  Duration compute{0};
  Bytes estimated{0};
  std::int64_t retries = 0;
  Duration collate{0};
  Duration scatter{0};
};

struct Reply {
  absl::Status status;
  Outcome outcome = Outcome::kOk;
  // Where the status is OK: for each of ModelSpec::outputs, in that order, its shape and its dense little-endian bytes, none where
  // it was not wanted.
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<std::string> outputs;
  RowReport report;  // the largest figures over the rows
};

// Thread-safe but for construction. Rows hold it by shared_ptr; `done` is called once, on the thread that finishes the last row
// and with no lock held. A request that is dropped unfinished answers INTERNAL from its destructor.
class Request {
 public:
  struct Row {
    std::int64_t length = 0;  // true length as the client sent it; 0 for fixed shapes
    Placement placement;
    RowWork work = {};  // that it adds to what waits
  };
  struct Parts {
    std::shared_ptr<const ModelSpec> spec;
    std::vector<RequestInput> inputs;  // one for each of spec->inputs; the bytes live until `done` is called
    std::int64_t client_length = 0;    // of the sequence axis
    std::vector<Row> rows;             // at least one
    std::vector<bool> wanted_outputs;  // one for each of spec->outputs; empty: all are wanted
    std::int64_t priority = 0;
    CallerId caller = 0;
    Bytes bytes{0};  // of host memory that it holds while it waits
    TimePoint arrived{};
    TimePoint deadline = kForever;  // to have started by
    std::function<void(Reply)> done;
  };

  explicit Request(Parts parts);
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  const ModelSpec& spec() const { return *parts_.spec; }
  const std::vector<Row>& rows() const { return parts_.rows; }
  std::int64_t client_length() const { return parts_.client_length; }
  std::int64_t priority() const { return parts_.priority; }
  CallerId caller() const { return parts_.caller; }
  // What the row adds to what waits: each of a request's rows stands for the same part of its bytes.
  Load LoadOf(std::size_t row) const;
  TimePoint arrived() const { return parts_.arrived; }
  TimePoint deadline() const { return parts_.deadline; }

  // The row's part of input `input`, dims with the client's length; null where the input was left out.
  const std::byte* InputRow(std::size_t input, std::size_t row) const;

  bool wants(std::size_t output) const { return parts_.wanted_outputs.empty() || parts_.wanted_outputs[output]; }

  // The row's part of output `output`, which is wanted, zeroed, dims with output_length(); written by whoever runs the row, by
  // nobody else.
  std::byte* OutputRow(std::size_t output, std::size_t row);

  // How long the sequence axis of outputs is: the client's own length, or the longest kept row where one was truncated.
  std::int64_t output_length() const { return output_length_; }

  // The client has gone: rows that have not started never will.
  void Cancel() { gone_ = true; }
  // Whether rows that have not started need not any more: cancelled, or another row has failed.
  bool gone() const { return gone_; }

  // The request was refused before any of its rows was queued: `done` will not be called.
  void Abandon() EXCLUDES(mutex_);

  // A row's answer is written. Each row is finished once, by one of these three.
  void RowSucceeded(const RowReport& report) EXCLUDES(mutex_);
  // The first failure is the request's.
  void RowFailed(absl::Status status, Outcome outcome) EXCLUDES(mutex_);
  // A row that was dropped since the request is gone(); says CANCELLED where that was the client.
  void RowDropped() EXCLUDES(mutex_);

 private:
  void FinishRow(absl::Status status, Outcome outcome, const RowReport* report) EXCLUDES(mutex_);
  void AllocateOutputs();

  // Constant after construction, but for `done`, which the last row takes.
  Parts parts_;
  std::int64_t output_length_ = 0;
  std::vector<std::int64_t> input_row_bytes_;
  std::vector<std::int64_t> output_row_bytes_;

  // Written by rows at disjoint places, once allocated.
  std::once_flag outputs_allocated_;
  std::vector<std::string> outputs_;

  // Read by a queue under its own lock, hence no lock here.
  std::atomic<bool> gone_ = false;

  Mutex mutex_;
  std::size_t unfinished_ GUARDED_BY(mutex_);
  absl::Status failure_ GUARDED_BY(mutex_);
  Outcome outcome_ GUARDED_BY(mutex_) = Outcome::kOk;
  RowReport report_ GUARDED_BY(mutex_);
};

}  // namespace headroom
