#include "server/inference_call.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "base/status_macros.h"
#include "server/status_mapping.h"

namespace headroom {
namespace {

// When a queue that is full now is worth another try.
constexpr std::int64_t kRetryAfterMs = 100;

// The call's deadline on our clock. The one place where gRPC's time is read.
TimePoint DeadlineOf(const grpc::CallbackServerContext& context, TimePoint now) {
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) return kForever;
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  if (left.tv_sec > std::chrono::duration_cast<std::chrono::seconds>(Duration::max()).count() / 2) return kForever;
  return After(now, std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec));
}

bool Parse(const grpc::ByteBuffer& bytes, inference::ModelInferRequest& message) {
  // The traits take the buffer that they read; a copy of it shares its slices.
  grpc::ByteBuffer shared(bytes);
  return grpc::SerializationTraits<inference::ModelInferRequest>::Deserialize(&shared, &message).ok();
}

void Serialize(const inference::ModelInferResponse& message, grpc::ByteBuffer& bytes) {
  bool own_buffer = false;
  // Fails only beyond 2 GiB, far over the largest message that may be sent.
  static_cast<void>(grpc::SerializationTraits<inference::ModelInferResponse>::Serialize(message, &bytes, &own_buffer));
}

}  // namespace

InferenceCall::InferenceCall(const ServiceParts& parts, grpc::CallbackServerContext* context,
                             const grpc::ByteBuffer* request, grpc::ByteBuffer* response)
    : parts_(parts),
      context_(context),
      request_bytes_(request),
      response_bytes_(response),
      arrived_(parts.clock.Now()) {}

void InferenceCall::Start() {
  const absl::Status status = Enqueue();
  if (!status.ok()) Conclude(status, refusal_, 0);
  // From here on the call may be gone already.
}

absl::Status InferenceCall::Enqueue() {
  const bool parsed = Parse(*request_bytes_, message_);
  auto entry = parts_.catalog.Find(message_.model_name(), "");
  if (entry.ok()) counted_as_ = entry->model->spec->name;
  parts_.observer.RequestReceived(counted_as_);
  const auto refuse = [this](absl::Status status) {
    refusal_ = OutcomeOfRefusal(status);
    return status;
  };
  if (!parsed) return refuse(absl::InvalidArgumentError("the request is not a ModelInferRequest message"));
  auto admittance = parts_.lifecycle.Admit();
  if (!admittance.ok()) return refuse(admittance.status());
  admittance_ = std::move(*admittance);
  entry = parts_.catalog.Find(message_.model_name(), message_.model_version());
  if (!entry.ok()) return refuse(entry.status());
  entry_ = std::move(*entry);
  auto decoded =
      DecodeRequest(message_, *entry_.model, parts_.limits, arrived_, DeadlineOf(*context_, arrived_));
  if (!decoded.ok()) return refuse(decoded.status());
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
      context_->AddTrailingMetadata(kRetryPushback, absl::StrCat(kRetryAfterMs));
    }
    return refuse(queued);
  }
  parts_.deadlines.Watch(deadline);
  parts_.work.Notify();
  return absl::OkStatus();
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
  request_->Cancel();
  FinishDeadRows(entry_.model->queue.ClaimDead(parts_.clock.Now()));
}

void InferenceCall::Answer(Reply reply) {
  const absl::Status status = reply.status;
  const Outcome outcome = reply.outcome;
  if (status.ok()) {
    inference::ModelInferResponse response;
    EncodeReply(message_, decoded_, *entry_.model, std::move(reply), &response);
    Serialize(response, *response_bytes_);
  }
  Conclude(status, outcome, static_cast<std::int64_t>(request_->rows().size()));
}

void InferenceCall::Conclude(const absl::Status& status, Outcome outcome, std::int64_t rows) {
  parts_.observer.RequestAnswered(counted_as_, outcome, rows, parts_.clock.Now() - arrived_);
  Finish(ToGrpc(status));
}

}  // namespace headroom
