#include "server/inference_stream.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "server/call_origin.h"
#include "server/status_mapping.h"
#include "server/stream_answer.h"

namespace headroom {

// One request of the stream and its answer. Whoever works on it holds it, since the answer may be written and the call closed at
// any moment once it has begun.
struct InferenceStream::Call {
  grpc::ByteBuffer request;
  grpc::ByteBuffer answer;
  std::optional<Inference> inference;  // from the request's arrival on
  std::uint64_t number = 0;
  bool begun = false;  // guarded by the stream's lock: Start has returned, so that it may be cancelled
};

InferenceStream::InferenceStream(const ServiceParts& parts, grpc::CallbackServerContext* context, int most_calls)
    : parts_(parts), context_(context), read_into_(std::make_shared<Call>()), turns_(static_cast<std::size_t>(most_calls)) {}

void InferenceStream::Start() {
  Take([](StreamTurns&) {});
}

template <class Event>
void InferenceStream::Take(const Event& happened) {
  StreamStep step;
  std::vector<std::shared_ptr<Call>> closed;  // dropped after the lock: with them go rights that have locks of their own
  Call* next = nullptr;
  grpc::Status end;
  {
    MutexLock lock(mutex_);
    happened(turns_);
    step = turns_.Next();
    for (std::size_t i = 0; i < step.closed; ++i) {
      closed.push_back(std::move(calls_.front()));
      calls_.pop_front();
    }
    if (step.write) next = calls_.front().get();
    if (step.finish && end_ != absl::StatusCode::kOk) end = ToGrpc(absl::Status(end_, "the stream was broken off"));
  }
  closed.clear();
  // The stream does not end while a read or a write is under way, so it is there for the second of the two.
  if (step.write) StartWrite(&next->answer);
  if (step.read) StartRead(&read_into_->request);
  if (step.finish) Finish(std::move(end));
}

void InferenceStream::OnReadDone(bool ok) {
  if (!ok) return Take([](StreamTurns& turns) { turns.NoMoreRequests(); });
  const std::shared_ptr<Call> call = std::move(read_into_);
  try {
    read_into_ = std::make_shared<Call>();
    call->inference.emplace(parts_, OriginOf(*context_, parts_.clock.Now(), parts_.breaker.caller_key()), call->request,
                            call->answer, [this, &call = *call](const InferenceEnd& end) { Answer(call, end); });
    MutexLock lock(mutex_);
    calls_.push_back(call);
    call->number = turns_.RequestCame();
  } catch (const std::bad_alloc&) {
    GiveUp(absl::StatusCode::kResourceExhausted);
    return Take([](StreamTurns& turns) { turns.RequestHasBegun(); });
  }
  call->inference->Start();
  bool broken = false;
  {
    MutexLock lock(mutex_);
    call->begun = true;
    broken = turns_.broken();
  }
  if (broken) call->inference->Cancel();
  // Only now the next is read, so that requests are admitted in the order in which they came.
  Take([](StreamTurns& turns) { turns.RequestHasBegun(); });
}

void InferenceStream::OnWriteDone(bool ok) {
  if (!ok) GiveUp(absl::StatusCode::kCancelled);
  Take([](StreamTurns& turns) { turns.AnswerWasWritten(); });
}

void InferenceStream::OnCancel() { GiveUp(absl::StatusCode::kCancelled); }

void InferenceStream::Answer(Call& call, const InferenceEnd& end) {
  try {
    if (end.status.ok()) {
      WrapReply(call.answer);
    } else {
      WriteError(call.inference->id(), end.status, end.retry_after, call.answer);
    }
  } catch (const std::bad_alloc&) {
    GiveUp(absl::StatusCode::kResourceExhausted);
  }
  Take([number = call.number](StreamTurns& turns) { turns.AnswerIsThere(number); });
}

void InferenceStream::GiveUp(absl::StatusCode why) {
  std::vector<std::shared_ptr<Call>> begun;
  {
    MutexLock lock(mutex_);
    if (turns_.broken()) return;
    turns_.Break();
    end_ = why;
    std::copy_if(calls_.begin(), calls_.end(), std::back_inserter(begun), [](const auto& call) { return call->begun; });
  }
  for (const auto& call : begun) call->inference->Cancel();
  begun.clear();
  Take([](StreamTurns&) {});
}

}  // namespace headroom
