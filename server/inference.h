// One inference from the bytes of its request to its answer, whatever it came by: the life of a request.
#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "batching/admission.h"
#include "batching/request.h"
#include "memory/host_budget.h"
#include "server/inference_service.h"
#include "server/message_scan.h"
#include "server/request_codec.h"

namespace headroom {

// What its way in tells of an inference, beside the bytes.
struct InferenceOrigin {
  TimePoint arrived{};
  TimePoint deadline = kForever;  // the caller's own, on our clock
  std::string_view caller;        // who asks, for the breaker; empty: unknown
};

// How it ended. Where the status is OK the answer's bytes are beside it.
struct InferenceEnd {
  absl::Status status;
  // When it is worth another try; negative: never. None where nothing is known of that.
  std::optional<Duration> retry_after;
};

// Answers exactly once. Holds its right to be in the server, and to its memory, until it is destroyed: which is to be when the
// answer has gone. Start and Cancel are not called at the same time.
class Inference {
 public:
  // Called once with the end: inside Start, or later on the thread that finished the last row, which may be before Start has
  // returned.
  using Answered = std::function<void(const InferenceEnd&)>;

  // `request` holds the bytes of a ModelInferRequest and loses them on the way; `response` gets those of a ModelInferResponse
  // where the end is OK. Both, and `parts`, outlive this object, which itself outlives Start and is there until `answered` is
  // called. What the origin's caller is a view into lives until Start returns.
  Inference(const ServiceParts& parts, const InferenceOrigin& origin, grpc::ByteBuffer& request, grpc::ByteBuffer& response,
            Answered answered)
      : parts_(parts), origin_(origin), request_bytes_(request), response_bytes_(response), answered_(std::move(answered)) {}
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

  // Decodes, admits and enqueues; or answers at once. To be called once.
  void Start();
  // Nobody wants the answer any more, or the call's deadline has passed: rows that wait leave the queue and the answer says so. A
  // row that runs is finished. After Start has returned; may be called when it has been answered already.
  void Cancel();

  // As the request gave it, known from Start's beginning; empty where it is too long to be read.
  const std::string& id() const { return id_; }

 private:
  // Errors are refusals, before any row is queued.
  absl::Status Enqueue();
  // By the version in `entry_`. UNAVAILABLE where its queue is closed.
  absl::Status DecodeAndQueue();
  // Notes how `status` is counted.
  absl::Status Refuse(absl::Status status);
  // Notes why for the load, and when to come again.
  absl::Status RefuseForLoad(absl::Status status, LoadReason reason, Duration retry_after);
  // RESOURCE_EXHAUSTED, retryable, where the caller's requests have been mostly wrong.
  absl::Status AskBreaker();
  // Gives up the place among the calls of the model before. RESOURCE_EXHAUSTED, retryable, where none is free.
  absl::Status TakePlace();
  // While others are refused for load: what can be told before the tensors are touched, where a refusal costs next to nothing.
  absl::Status CheckEnvelope(Bytes message_size);
  // RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED.
  absl::Status CheckLoadOf(const LoadAsk& ask, TimePoint* start_by = nullptr);
  // Fills in what waiting takes of `decoded_`, and checks the load.
  absl::Status PrepareToWait();
  absl::Status ReserveHostMemory(const RequestEnvelope& envelope);
  // Where memory is very short: the model that answers in place of the one asked for.
  void FallBack();
  // RESOURCE_EXHAUSTED, retryable, for what is left out while memory is short.
  absl::Status CheckDegradation();
  absl::Status CheckRoom() const;
  // The answer of the request's rows; on the thread that finished the last one.
  void Answer(Reply reply);
  // Nothing reads the request any more: its memory goes, and the right to it.
  void LetGoOfRequest();
  void Conclude(absl::Status status, Outcome outcome, std::int64_t rows);

  const ServiceParts& parts_;
  const InferenceOrigin origin_;
  grpc::ByteBuffer& request_bytes_;
  grpc::ByteBuffer& response_bytes_;
  Answered answered_;

  std::string id_;
  BreakerPass pass_;
  bool too_large_ = false;                  // a row could not fit the idle device
  std::optional<Duration> retry_after_;     // what a refusal tells the caller's retry policy
  HostReservation request_memory_;          // outlives what it is for
  HostReservation reply_memory_;            // until the reply has been sent
  inference::ModelInferRequest message_;    // rows are views into it
  std::string counted_as_ = kUnknownModel;  // the model's name in metrics
  Outcome refusal_ = Outcome::kFailed;      // the outcome, where Enqueue ended in an error
  CatalogEntry entry_;                      // of the model that answers
  CallPlace place_;                         // among that model's calls
  CallerId caller_ = 0;
  std::string served_by_;  // its name, where another was asked for
  DecodedRequest decoded_;
  std::shared_ptr<Request> request_;
  Admittance admittance_;  // so that a drain waits for the answer to be sent
};

}  // namespace headroom
