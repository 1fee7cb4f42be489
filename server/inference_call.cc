#include "server/inference_call.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/status_macros.h"
#include "server/compressed_message.h"
#include "server/host_needs.h"
#include "server/status_mapping.h"

namespace headroom {
namespace {

// When a queue or a memory that is full now is worth another try.
constexpr Duration kRetryAfter = std::chrono::milliseconds(100);
// What is refused while memory is short is so for a while.
constexpr Duration kRetryAfterDegraded = std::chrono::seconds(1);
constexpr Duration kDoNotRetry = std::chrono::milliseconds(-1);
// gRPC tells of a deadline as of a cancellation, and by its own clock.
constexpr Duration kDeadlineSlack = std::chrono::milliseconds(5);

// The call's deadline on our clock. The one place where gRPC's time is read.
TimePoint DeadlineOf(const grpc::CallbackServerContext& context, TimePoint now) {
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) return kForever;
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  if (left.tv_sec > std::chrono::duration_cast<std::chrono::seconds>(Duration::max()).count() / 2) return kForever;
  return After(now, std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec));
}

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

absl::Status Serialize(const inference::ModelInferResponse& message, grpc::ByteBuffer& bytes) {
  bool own_buffer = false;
  const bool fits = grpc::SerializationTraits<inference::ModelInferResponse>::Serialize(message, &bytes, &own_buffer).ok();
  return fits ? absl::OkStatus() : absl::InternalError("the answer does not fit a message");
}

absl::Status HostIsFull() { return absl::ResourceExhaustedError("the server has no memory left for this request"); }

}  // namespace

InferenceCall::InferenceCall(const ServiceParts& parts, grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                             grpc::ByteBuffer* response)
    : parts_(parts),
      context_(context),
      request_bytes_(const_cast<grpc::ByteBuffer*>(request)),  // gRPC's own, non-const object: see Parse
      response_bytes_(response),
      arrived_(parts.clock.Now()) {}

void InferenceCall::Start() {
  absl::Status status;
  try {
    status = Enqueue();
  } catch (const std::bad_alloc&) {
    // Decoding copies what clients send, and a queue grows; nothing is queued where that fails, so nobody else will answer.
    if (request_ != nullptr) request_->Abandon();
    refusal_ = Outcome::kOverBudget;
    status = HostIsFull();
  }
  if (!status.ok()) Conclude(status, refusal_, 0);
  // A worker may have answered already; gRPC calls OnDone only after this call's method has returned.
}

absl::Status InferenceCall::Enqueue() {
  RequestEnvelope envelope;
  absl::Status scanned = Inflate(*request_bytes_, parts_.limits.max_message_size);
  if (scanned.ok()) scanned = Scan(*request_bytes_, parts_.limits, envelope);
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
  if (absl::Status reserved = ReserveHostMemory(envelope); !reserved.ok()) return reserved;
  const Bytes message_size{static_cast<std::int64_t>(request_bytes_->Length())};
  if (!Parse(*request_bytes_, message_)) {
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
  }
}

absl::Status InferenceCall::DecodeAndQueue() {
  TailRows tail;
  auto decoded = DecodeRequest(message_, *entry_.model, parts_.limits, arrived_, DeadlineOf(*context_, arrived_), &tail);
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
  const TimePoint deadline = decoded_.parts.deadline;
  decoded_.parts.done = [this](Reply reply) { Answer(std::move(reply)); };
  request_ = std::make_shared<Request>(std::move(decoded_.parts));
  // Before it is queued: from then on the answer may come at any time, on another thread.
  request_memory_.MoveTo(HostStage::kQueue);
  if (absl::Status queued = entry_.model->queue.Enqueue(request_); !queued.ok()) {
    request_->Abandon();
    if (queued.code() == absl::StatusCode::kResourceExhausted) {
      const bool ever_fits = static_cast<std::int64_t>(request_->rows().size()) <= entry_.model->spec->queue.max_rows;
      PushBack(ever_fits ? kRetryAfter : kDoNotRetry);
    }
    return Refuse(queued);
  }
  parts_.tail.Tell(counted_as_, tail);
  parts_.deadlines.Watch(deadline);
  parts_.work.Notify();
  return absl::OkStatus();
}

absl::Status InferenceCall::Refuse(absl::Status status) {
  refusal_ = OutcomeOfRefusal(status);
  return status;
}

absl::Status InferenceCall::AskBreaker() {
  if (parts_.breaker.caller_key().empty()) return absl::OkStatus();
  const auto& metadata = context_->client_metadata();
  const auto caller = metadata.find(parts_.breaker.caller_key());
  if (caller == metadata.end()) return absl::OkStatus();
  auto answer = parts_.breaker.Ask({caller->second.data(), caller->second.size()});
  if (auto* const pass = std::get_if<BreakerPass>(&answer)) {
    pass_ = std::move(*pass);
    return absl::OkStatus();
  }
  PushBack(std::get<Duration>(answer));
  return absl::ResourceExhaustedError("this caller's recent requests were mostly invalid: it is refused for a while");
}

absl::Status InferenceCall::ReserveHostMemory(const RequestEnvelope& envelope) {
  const Bytes message_size{static_cast<std::int64_t>(request_bytes_->Length())};
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
  PushBack(ever_fits ? kRetryAfter : kDoNotRetry);
  return reserved.status();
}

void InferenceCall::PushBack(Duration wait) {
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
  context_->AddTrailingMetadata(kRetryPushback, absl::StrCat(milliseconds));
}

void InferenceCall::FallBack() {
  served_by_.clear();
  served_by_.clear();
  const std::string& fallback = entry_.model->spec->fallback_model;
  if (fallback.empty() || entry_.model->degradation() < DegradationLevel::kFallbackModel) return;
  auto entry = parts_.catalog.Find(fallback, "");
  if (!entry.ok()) return;  // unloaded meanwhile
  entry_ = *std::move(entry);
  served_by_ = fallback;
}

absl::Status InferenceCall::CheckDegradation() {
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
  PushBack(kRetryAfterDegraded);
  return absl::ResourceExhaustedError(absl::StrCat("the device is short of memory: for the time being it refuses ", refused));
}

absl::Status InferenceCall::CheckRoom() const {
  for (const Request::Row& row : decoded_.parts.rows) {
    const ServedModel::Room room = entry_.model->RoomFor(row.placement);
    if (!room.fits()) return OverBudgetError(room.needs, room.idle_budget);
  }
  return absl::OkStatus();
}

void InferenceCall::OnCancel() {
  if (request_ == nullptr) return;
  const TimePoint now = parts_.clock.Now();
  if (After(now, kDeadlineSlack) >= request_->deadline()) {
    return FinishDeadRows(entry_.model->queue.ClaimDead(request_->deadline()));
  }
  request_->Cancel();
  FinishDeadRows(entry_.model->queue.ClaimDead(now));
}

void InferenceCall::Answer(Reply reply) {
  absl::Status status = reply.status;
  Outcome outcome = reply.outcome;
  if (status.ok()) {
    try {
      inference::ModelInferResponse response;
      EncodeReply(message_, decoded_, *entry_.model, std::move(reply), &response);
      LetGoOfRequest();
      status = Serialize(response, *response_bytes_);
    } catch (const std::bad_alloc&) {
      status = HostIsFull();
    }
    if (!status.ok()) outcome = Outcome::kFailed;
    // The outputs themselves have gone; their copy is gRPC's until it is sent.
    reply_memory_.Shrink({static_cast<std::int64_t>(response_bytes_->Length())});
  }
  Conclude(status, outcome, static_cast<std::int64_t>(request_->rows().size()));
}

void InferenceCall::LetGoOfRequest() {
  message_ = inference::ModelInferRequest();
  decoded_.tensors = InputTensors();
  request_memory_ = HostReservation();
}

void InferenceCall::Conclude(const absl::Status& status, Outcome outcome, std::int64_t rows) {
  if (!status.ok()) {
    LetGoOfRequest();
    reply_memory_ = HostReservation();
  }
  // Other outcomes tell nothing of the caller.
  if (outcome == Outcome::kOk) pass_.Judge(/*abnormal=*/false);
  if (outcome == Outcome::kInvalid || too_large_) pass_.Judge(/*abnormal=*/true);
  parts_.observer.RequestAnswered(counted_as_, outcome, rows, parts_.clock.Now() - arrived_);
  Finish(ToGrpc(status));
}

}  // namespace headroom
