#include "server/inference.h"

#include <absl/hash/hash.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/status_macros.h"
#include "server/compressed_message.h"
#include "server/host_needs.h"
#include "server/status_mapping.h"
#include "server/stream_answer.h"

namespace headroom {
namespace {

// When a queue or a memory that is full now is worth another try.
constexpr Duration kRetryAfter = std::chrono::milliseconds(100);
// What is refused while memory is short is so for a while.
constexpr Duration kRetryAfterDegraded = std::chrono::seconds(1);
constexpr Duration kDoNotRetry = std::chrono::milliseconds(-1);
// gRPC tells of a deadline as of a cancellation, and by its own clock.
constexpr Duration kDeadlineSlack = std::chrono::milliseconds(5);

absl::Status Scan(const grpc::ByteBuffer& bytes, const RequestLimits& limits, RequestEnvelope& envelope) {
  grpc::ByteBuffer shared(bytes);  // shares the slices; a reader wants a buffer that it may change
  grpc::ProtoBufferReader reader(&shared);
  return ScanInferRequest(reader, limits, envelope);
}

// Parses the message and lets go of its bytes: a request that waits should not be held twice.
bool Parse(grpc::ByteBuffer& bytes, inference::ModelInferRequest& message) {
  const bool parsed = grpc::SerializationTraits<inference::ModelInferRequest>::Deserialize(&bytes, &message).ok();
  bytes.Clear();
  return parsed;
}

absl::Status Serialize(const inference::ModelInferResponse& message, const RequestLimits& limits, grpc::ByteBuffer& bytes) {
  bool own_buffer = false;
  bool fits = grpc::SerializationTraits<inference::ModelInferResponse>::Serialize(message, &bytes, &own_buffer).ok();
  // Decoding has seen to its tensors; names and what surrounds them may still be too much. gRPC would end a whole stream for it.
  fits = fits && bytes.Length() + kStreamOverhead <= static_cast<std::size_t>(limits.max_message_size.count);
  return fits ? absl::OkStatus() : absl::InternalError("the answer does not fit a message");
}

absl::Status HostIsFull() { return absl::ResourceExhaustedError("the server has no memory left for this request"); }

}  // namespace

void Inference::Start() {
  absl::Status status;
  try {
    status = Enqueue();
  } catch (const std::bad_alloc&) {
    // Decoding copies what clients send, and a queue grows; nothing is queued where that fails, so nobody else will answer.
    if (request_ != nullptr) request_->Abandon();
    refusal_ = Outcome::kOverBudget;
    status = HostIsFull();
  }
  if (!status.ok()) Conclude(std::move(status), refusal_, 0);
}

absl::Status Inference::Enqueue() {
  RequestEnvelope envelope;
  absl::Status scanned = Inflate(request_bytes_, parts_.limits.max_message_size);
  if (scanned.ok()) scanned = Scan(request_bytes_, parts_.limits, envelope);
  id_ = std::move(envelope.id);
  auto entry = parts_.catalog.Find(envelope.model_name, "");
  if (entry.ok()) counted_as_ = entry->model->spec->name;
  parts_.observer.RequestReceived(counted_as_);
  auto admittance = parts_.lifecycle.Admit();
  if (!admittance.ok()) return Refuse(admittance.status());
  admittance_ = std::move(*admittance);
  if (absl::Status passed = AskBreaker(); !passed.ok()) return Refuse(passed);
  if (!scanned.ok()) return Refuse(scanned);
  entry = parts_.catalog.Find(envelope.model_name, envelope.model_version);
  if (!entry.ok()) return Refuse(entry.status());
  entry_ = *std::move(entry);
  FallBack();
  if (!origin_.caller.empty()) caller_ = absl::Hash<std::string_view>{}(origin_.caller) | 1;
  RETURN_IF_ERROR(TakePlace());
  const Bytes message_size{static_cast<std::int64_t>(request_bytes_.Length())};
  RETURN_IF_ERROR(CheckEnvelope(message_size));
  if (absl::Status reserved = ReserveHostMemory(envelope); !reserved.ok()) return reserved;
  if (!Parse(request_bytes_, message_)) {
    return Refuse(absl::InvalidArgumentError("the request is not a ModelInferRequest message"));
  }
  // The bytes that were parsed have gone.
  request_memory_.Shrink(request_memory_.bytes() - message_size);
  while (true) {
    absl::Status queued = DecodeAndQueue();
    if (!absl::IsUnavailable(queued)) return queued;
    // Its queue was closed between the look and the attempt: another version may have taken its place.
    entry = parts_.catalog.Find(envelope.model_name, envelope.model_version);
    if (!entry.ok()) return queued;
    const CatalogEntry tried = std::exchange(entry_, *std::move(entry));
    FallBack();
    if (entry_.model == tried.model) return queued;
    RETURN_IF_ERROR(TakePlace());
  }
}

absl::Status Inference::DecodeAndQueue() {
  TailRows tail;
  auto decoded = DecodeRequest(message_, *entry_.model, parts_.limits, origin_.arrived, origin_.deadline, &tail);
  if (!decoded.ok()) {
    parts_.tail.Tell(counted_as_, {.refused = tail.refused, .longest = tail.longest});
    return Refuse(decoded.status());
  }
  decoded_ = std::move(*decoded);
  decoded_.served_by = served_by_;
  if (absl::Status degraded = CheckDegradation(); !degraded.ok()) {
    parts_.tail.Tell(counted_as_, {.refused = tail.total(), .longest = tail.longest});
    return Refuse(degraded);
  }
  if (absl::Status room = CheckRoom(); !room.ok()) {
    refusal_ = Outcome::kOverBudget;
    too_large_ = true;
    return room;
  }
  RETURN_IF_ERROR(PrepareToWait());
  const TimePoint deadline = decoded_.parts.deadline;
  decoded_.parts.done = [this](Reply reply) { Answer(std::move(reply)); };
  request_ = std::make_shared<Request>(std::move(decoded_.parts));
  // Before it is queued: from then on the answer may come at any time, on another thread.
  request_memory_.MoveTo(HostStage::kQueue);
  if (absl::Status queued = entry_.model->queue.Enqueue(request_); !queued.ok()) {
    request_->Abandon();
    // Others came between the look and the attempt.
    if (absl::IsResourceExhausted(queued)) return RefuseForLoad(std::move(queued), LoadReason::kQueue, kRetryAfter);
    return Refuse(queued);
  }
  parts_.tail.Tell(counted_as_, tail);
  for (const Request::Row& row : request_->rows()) entry_.model->lengths->Add(row.length);
  parts_.deadlines.Watch(deadline);
  parts_.work.Notify();
  return absl::OkStatus();
}

absl::Status Inference::TakePlace() {
  place_ = CallPlace();
  CallLimit& calls = entry_.model->calls;
  if (auto place = calls.Enter()) {
    place_ = *std::move(place);
    return absl::OkStatus();
  }
  return RefuseForLoad(
      absl::ResourceExhaustedError(absl::StrCat("as many requests to the model as may be are inside: ", calls.most())),
      LoadReason::kCalls, kRetryAfter);
}

absl::Status Inference::CheckEnvelope(Bytes message_size) {
  // Otherwise a request is told first what is wrong with it.
  if (!entry_.model->Overloaded(parts_.clock.Now())) return absl::OkStatus();
  const std::int64_t most_urgent = entry_.model->spec->queue.priority_levels > 0 ? 1 : 0;
  return CheckLoadOf({.bytes = message_size, .priority = most_urgent, .caller = caller_, .answer_by = origin_.deadline});
}

absl::Status Inference::CheckLoadOf(const LoadAsk& ask, TimePoint* start_by) {
  LoadAnswer answer = CheckLoad(*entry_.model, parts_.catalog.models(), ask, parts_.clock.Now());
  if (!answer.refused) {
    if (start_by != nullptr) *start_by = answer.start_by;
    return absl::OkStatus();
  }
  entry_.model->NoteRefusal(parts_.clock.Now());
  return RefuseForLoad(std::move(answer.refused->status), answer.refused->reason, answer.refused->retry_after);
}

absl::Status Inference::PrepareToWait() {
  Request::Parts& parts = decoded_.parts;
  const Request::Row* largest = nullptr;
  for (Request::Row& row : parts.rows) {
    row.work = entry_.model->WorkOf(row.placement);
    if (largest == nullptr || row.placement.kept_length > largest->placement.kept_length) largest = &row;
  }
  parts.caller = caller_;
  parts.bytes = request_memory_.bytes();
  LoadAsk ask{.rows = static_cast<std::int64_t>(parts.rows.size()),
              .bytes = parts.bytes,
              .priority = parts.priority,
              .caller = caller_,
              .largest = largest->placement,
              .start_by = parts.deadline,
              .answer_by = origin_.deadline};
  if (parts.deadline == kForever) {
    ask.most_wait = FromSeconds(parts_.queue.max_wait_seconds);
  }
  RETURN_IF_ERROR(CheckLoadOf(ask, &parts.deadline));
  if (parts.deadline == kForever) parts.deadline = After(origin_.arrived, ask.most_wait);
  return absl::OkStatus();
}

absl::Status Inference::Refuse(absl::Status status) {
  refusal_ = OutcomeOfRefusal(status);
  return status;
}

absl::Status Inference::RefuseForLoad(absl::Status status, LoadReason reason, Duration retry_after) {
  retry_after_ = retry_after;
  parts_.observer.RefusedForLoad(counted_as_, reason);
  return Refuse(std::move(status));
}

absl::Status Inference::AskBreaker() {
  if (origin_.caller.empty()) return absl::OkStatus();
  auto answer = parts_.breaker.Ask(origin_.caller);
  if (auto* const pass = std::get_if<BreakerPass>(&answer)) {
    pass_ = std::move(*pass);
    return absl::OkStatus();
  }
  retry_after_ = std::get<Duration>(answer);
  return absl::ResourceExhaustedError("this caller's recent requests were mostly invalid: it is refused for a while");
}

absl::Status Inference::ReserveHostMemory(const RequestEnvelope& envelope) {
  const Bytes message_size{static_cast<std::int64_t>(request_bytes_.Length())};
  const HostNeeds needs = NeedsOf(envelope, message_size, *entry_.model->spec, parts_.limits);
  // In one step, the reply's part too: a request that is admitted never has to wait for the host's memory.
  auto reserved = parts_.host.Reserve(HostStage::kRequest, needs.total());
  if (reserved.ok()) {
    reply_memory_ = reserved->Split(HostStage::kReply, needs.reply);
    request_memory_ = *std::move(reserved);
    return absl::OkStatus();
  }
  const bool ever_fits = parts_.host.CouldEverFit(needs.total());
  refusal_ = ever_fits ? Outcome::kQueueFull : Outcome::kOverBudget;
  retry_after_ = ever_fits ? kRetryAfter : kDoNotRetry;
  return reserved.status();
}

void Inference::FallBack() {
  served_by_.clear();
  const std::string& fallback = entry_.model->spec->fallback_model;
  if (fallback.empty() || entry_.model->degradation() < DegradationLevel::kFallbackModel) return;
  auto entry = parts_.catalog.Find(fallback, "");
  if (!entry.ok()) return;  // unloaded meanwhile
  entry_ = *std::move(entry);
  served_by_ = fallback;
}

absl::Status Inference::CheckDegradation() {
  const DegradationLevel level = entry_.model->degradation();
  if (level == DegradationLevel::kNone) return absl::OkStatus();
  const Request::Parts& request = decoded_.parts;
  const ModelSpec& spec = *entry_.model->spec;
  std::string refused;
  if (RefusesPriority(level, request.priority, spec.queue.priority_levels)) {
    refused = absl::StrCat("requests of priority ", request.priority, " of ", spec.queue.priority_levels);
  }
  const auto in_a_tier = [](const Request::Row& row) { return row.placement.alone || row.placement.kept_length < row.length; };
  if (RefusesTiers(level) && std::any_of(request.rows.begin(), request.rows.end(), in_a_tier)) {
    refused = absl::StrCat("rows longer than ", spec.sequence.buckets.back());
  }
  if (refused.empty()) return absl::OkStatus();
  retry_after_ = kRetryAfterDegraded;
  return absl::ResourceExhaustedError(absl::StrCat("the device is short of memory: for the time being it refuses ", refused));
}

absl::Status Inference::CheckRoom() const {
  for (const Request::Row& row : decoded_.parts.rows) {
    const ServedModel::Room room = entry_.model->RoomFor(row.placement);
    if (!room.fits()) return OverBudgetError(room.needs, room.idle_budget);
  }
  return absl::OkStatus();
}

void Inference::Cancel() {
  if (request_ == nullptr) return;
  const TimePoint now = parts_.clock.Now();
  if (After(now, kDeadlineSlack) >= request_->deadline()) {
    return FinishDeadRows(entry_.model->queue.ClaimDead(request_->deadline()));
  }
  request_->Cancel();
  FinishDeadRows(entry_.model->queue.ClaimDead(now));
}

void Inference::Answer(Reply reply) {
  absl::Status status = reply.status;
  Outcome outcome = reply.outcome;
  if (status.ok()) {
    const RowReport& report = reply.report;
    ServedRequest served{report.queue, report.collate, report.compute, report.scatter};
    const TimePoint began = parts_.clock.Now();
    try {
      inference::ModelInferResponse response;
      EncodeReply(message_, decoded_, *entry_.model, std::move(reply), &response);
      LetGoOfRequest();
      status = Serialize(response, parts_.limits, response_bytes_);
    } catch (const std::bad_alloc&) {
      status = HostIsFull();
    }
    served.answered = parts_.clock.Now();
    served.compute_output += served.answered - began;
    if (status.ok()) parts_.observer.RequestServed(counted_as_, served);
    if (!status.ok()) outcome = Outcome::kFailed;
    // The outputs themselves have gone; their copy is gRPC's until it is sent.
    reply_memory_.Shrink({static_cast<std::int64_t>(response_bytes_.Length())});
  }
  Conclude(std::move(status), outcome, static_cast<std::int64_t>(request_->rows().size()));
}

void Inference::LetGoOfRequest() {
  request_bytes_.Clear();
  message_ = inference::ModelInferRequest();
  decoded_.tensors = InputTensors();
  request_memory_ = HostReservation();
}

void Inference::Conclude(absl::Status status, Outcome outcome, std::int64_t rows) {
  if (!status.ok()) {
    LetGoOfRequest();
    reply_memory_ = HostReservation();
  }
  // Other outcomes tell nothing of the caller.
  if (outcome == Outcome::kOk) pass_.Judge(/*abnormal=*/false);
  if (outcome == Outcome::kInvalid || too_large_) pass_.Judge(/*abnormal=*/true);
  parts_.observer.RequestAnswered(counted_as_, outcome, rows, parts_.clock.Now() - origin_.arrived);
  place_ = CallPlace();  // before the answer, which may bring the next request of the same client
  // Moved out first: whoever is answered may drop this object.
  const Answered answered = std::move(answered_);
  answered({std::move(status), retry_after_});
}

}  // namespace headroom
