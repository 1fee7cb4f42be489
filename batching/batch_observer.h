// What batching tells of its work. Called on the threads that do it, with no lock held; implementations are thread-safe and quick.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"

namespace headroom {

// How a request ended.
enum class Outcome {
  kOk,
  kInvalid,      // the request is wrong
  kNotFound,     // no such model or version
  kQueueFull,    // no room to wait; may come again
  kOverBudget,   // could not fit the memory
  kExpired,      // its time was up
  kCancelled,    // the client has gone
  kUnavailable,  // starting, draining, or the device is lost
  kFailed,       // the model failed on it
};

// Why a batch holds no more rows than it does.
enum class BatchLimit {
  kNone,    // no more rows waited for it
  kRows,    // the largest batch
  kMemory,  // the next row would not have fitted the memory available
};

// What becomes of a row beyond the last bucket.
enum class TailTreatment {
  kTruncate,  // cut to the last bucket's length
  kSolo,      // runs alone
  kRefused,   // beyond the last tier, or while tiers are left out for lack of memory
};

// Why rows were run again.
enum class RetryReason { kOutOfMemory, kModelError };

// Why a request was refused for what waits or runs.
enum class LoadReason {
  kQueue,     // no room for its rows or bytes
  kCalls,     // as many calls as may be inside are
  kDeadline,  // its time would be up before it could be answered
  kWait,      // it would wait longer than the server lets anybody
  kShare,     // its caller has its share of the queue
};

struct BatchReport {
  std::string model;
  std::string device;
  std::int64_t bucket = 0;  // 0: fixed shapes
  std::int64_t rows = 0;
  std::int64_t useful_tokens = 0;   // of rows' true lengths
  std::int64_t padding_tokens = 0;  // computed beyond them
  BatchLimit limited_by = BatchLimit::kNone;
  Bytes estimated{0};            // what the allocator would hold for it
  Bytes expected_tensors{0};     // and the bytes in its tensors,
  std::optional<Bytes> actual;   // which really were this much, where it could be told from other batches'
  bool under_estimated = false;  // it took more than was reserved for it
  Duration compute{0};
  std::int64_t late_rows = 0;   // whose time was up before the batch began: none, or deadlines are not kept
  std::vector<Duration> waits;  // a row's wait, from its request's arrival to the start of the batch
  Duration collate{0};          // rows → padded tensors
  Duration scatter{0};          // outputs → the rows' requests
  int extra_threads = 0;        // beyond those that every run has
};

// The model of requests for names that are not served, so that clients cannot make new series.
inline constexpr const char* kUnknownModel = "(unknown)";

// Where a request that was answered OK spent its time: of its rows, the largest of each.
struct ServedRequest {
  Duration queue{0};
  Duration compute_input{0};   // putting its batch together
  Duration compute_infer{0};   // the run
  Duration compute_output{0};  // taking the batch apart, and making the answer
  TimePoint answered{};
};

class BatchObserver {
 public:
  virtual ~BatchObserver() = default;

  // An inference request came in for `model`; kUnknownModel where no such model is served.
  virtual void RequestReceived(const std::string& model) = 0;
  // It was answered; told once for each received. `rows`: those that were admitted, 0 where it was refused.
  virtual void RequestAnswered(const std::string& model, Outcome outcome, std::int64_t rows, Duration took) = 0;

  // It was answered OK; told just before RequestAnswered.
  virtual void RequestServed(const std::string& /*model*/, const ServedRequest& /*request*/) {}

  // So many rows of a request to `model` were beyond its last bucket, and were treated so.
  virtual void TailRows(const std::string& /*model*/, TailTreatment /*treatment*/, std::int64_t /*rows*/) {}

  // A request to `model` was refused for load; RequestAnswered tells of it too.
  virtual void RefusedForLoad(const std::string& /*model*/, LoadReason /*reason*/) {}

  // A batch ran to its end.
  virtual void BatchFinished(const BatchReport& report) = 0;
  virtual void OutOfMemory(const std::string& model, const std::string& device) = 0;
  // A run failed, and its rows are run again.
  virtual void BatchRetried(const std::string& model, RetryReason reason) = 0;
  // The device will not run anything again in this process.
  virtual void DeviceWasLost(const std::string& device, const std::string& why) = 0;
};

}  // namespace headroom
