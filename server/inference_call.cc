#include "server/inference_call.h"

#include <absl/strings/str_cat.h>

#include <new>
#include <utility>

#include "base/status_macros.h"
#include "server/message_scan.h"
#include "server/status_mapping.h"

namespace headroom {
namespace {

// When a queue that is full now is worth another try.
constexpr std::int64_t kRetryAfterMs = 100;
constexpr std::int64_t kDoNotRetry = -1;
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
  const absl::Status scanned = Scan(*request_bytes_, parts_.limits, envelope);
  auto entry = parts_.catalog.Find(envelope.model_name, "");
  if (entry.ok()) counted_as_ = entry->model->spec->name;
  parts_.observer.RequestReceived(counted_as_);
  auto admittance = parts_.lifecycle.Admit();
  if (!admittance.ok()) return Refuse(admittance.status());
  admittance_ = std::move(*admittance);
  if (!scanned.ok()) return Refuse(scanned);
  entry = parts_.catalog.Find(envelope.model_name, envelope.model_version);
  if (!entry.ok()) return Refuse(entry.status());
  if (!Parse(*request_bytes_, message_)) {
    return Refuse(absl::InvalidArgumentError("the request is not a ModelInferRequest message"));
  }
  while (true) {
    entry_ = *std::move(entry);
    absl::Status queued = DecodeAndQueue();
    if (!absl::IsUnavailable(queued)) return queued;
    // Its queue was closed between the look and the attempt: another version may have taken its place.
    entry = parts_.catalog.Find(envelope.model_name, envelope.model_version);
    if (!entry.ok() || entry->model == entry_.model) return queued;
  }
}

absl::Status InferenceCall::DecodeAndQueue() {
  auto decoded = DecodeRequest(message_, *entry_.model, parts_.limits, arrived_, DeadlineOf(*context_, arrived_));
  if (!decoded.ok()) return Refuse(decoded.status());
  decoded_ = std::move(*decoded);
  if (absl::Status room = CheckRoom(); !room.ok()) {
    refusal_ = Outcome::kOverBudget;
    return room;
  }
  const TimePoint deadline = decoded_.parts.deadline;
  decoded_.parts.done = [this](Reply reply) { Answer(std::move(reply)); };
  request_ = std::make_shared<Request>(std::move(decoded_.parts));
  if (absl::Status queued = entry_.model->queue.Enqueue(request_); !queued.ok()) {
    request_->Abandon();
    if (queued.code() == absl::StatusCode::kResourceExhausted) {
      const bool ever_fits = static_cast<std::int64_t>(request_->rows().size()) <= entry_.model->spec->queue.max_rows;
      context_->AddTrailingMetadata(kRetryPushback, absl::StrCat(ever_fits ? kRetryAfterMs : kDoNotRetry));
    }
    return Refuse(queued);
  }
  parts_.deadlines.Watch(deadline);
  parts_.work.Notify();
  return absl::OkStatus();
}

absl::Status InferenceCall::Refuse(absl::Status status) {
  refusal_ = OutcomeOfRefusal(status);
  return status;
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
      status = Serialize(response, *response_bytes_);
    } catch (const std::bad_alloc&) {
      status = HostIsFull();
    }
    if (!status.ok()) outcome = Outcome::kFailed;
  }
  Conclude(status, outcome, static_cast<std::int64_t>(request_->rows().size()));
}

void InferenceCall::Conclude(const absl::Status& status, Outcome outcome, std::int64_t rows) {
  parts_.observer.RequestAnswered(counted_as_, outcome, rows, parts_.clock.Now() - arrived_);
  Finish(ToGrpc(status));
}

}  // namespace headroom
