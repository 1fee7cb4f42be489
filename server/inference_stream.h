// One ModelStreamInfer call: many inferences in flight, answered in the order in which they came.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>

#include "base/sync.h"
#include "server/inference.h"
#include "server/inference_service.h"
#include "server/stream_turns.h"

namespace headroom {

// Owns itself: deletes itself when gRPC has done with it. Every request gets one answer, an error too; the stream itself ends OK
// when the client has said that there are no more and all are answered.
//
// An inference is admitted to the server for itself and leaves it when its answer has been written: a stream on which nothing
// is asked for is no work, and does not hold up a drain.
class InferenceStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // What is passed outlives the stream. `most_calls`: so many are open at most before reading stops.
  InferenceStream(const ServiceParts& parts, grpc::CallbackServerContext* context, int most_calls);

  // To be called once, before the stream is handed to gRPC.
  void Start() EXCLUDES(mutex_);

  void OnReadDone(bool ok) override EXCLUDES(mutex_);
  void OnWriteDone(bool ok) override EXCLUDES(mutex_);
  void OnCancel() override EXCLUDES(mutex_);
  void OnDone() override { delete this; }

 private:
  struct Call;

  // Notes what `happened`, on the turns, and does what comes next. Nothing may be touched after it: the stream may have gone.
  template <class Event>
  void Take(const Event& happened) EXCLUDES(mutex_);
  void Begin(const std::shared_ptr<Call>& call) EXCLUDES(mutex_);
  void Answer(Call& call, const InferenceEnd& end) EXCLUDES(mutex_);
  // No answer can be written any more: what waits need not run.
  void GiveUp(absl::StatusCode why) EXCLUDES(mutex_);

  const ServiceParts& parts_;
  grpc::CallbackServerContext* const context_;

  std::shared_ptr<Call> read_into_;  // belongs to the read under way, and then to OnReadDone

  Mutex mutex_;
  StreamTurns turns_ GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Call>> calls_ GUARDED_BY(mutex_);  // those that are open, the oldest first
  absl::StatusCode end_ GUARDED_BY(mutex_) = absl::StatusCode::kOk;
};

}  // namespace headroom
