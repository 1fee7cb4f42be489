// Calls a model again and again, always the same single row, as fast as the server answers or at a steady rate: what only many
// calls show.
//
//   headroom_many_calls HOST:PORT MODEL CALLS IN_FLIGHT [CALLS_A_SECOND]
//
// The model takes one input "x" of 16 FP32, as the toy "identity" does. Prints how many calls were answered and failed and the
// seconds they took. Exit code: 0 every call was answered, 1 some were not, 2 wrong usage.
#include <absl/strings/numbers.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "proto/open_inference.grpc.pb.h"

namespace headroom {
namespace {

constexpr int kWidth = 16;

inference::ModelInferRequest RequestFor(const std::string& model) {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  auto* const input = request.add_inputs();
  input->set_name("x");
  input->set_datatype("FP32");
  input->add_shape(1);
  input->add_shape(kWidth);
  request.add_raw_input_contents(std::string(kWidth * sizeof(float), '\0'));
  return request;
}

struct Call {
  grpc::ClientContext context;
  inference::ModelInferResponse reply;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<inference::ModelInferResponse>> reader;
};

class Caller {
 public:
  Caller(const std::string& address, const std::string& model)
      : stub_(inference::GRPCInferenceService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        request_(RequestFor(model)) {}

  void Start() {
    auto* const call = new Call;
    call->reader = stub_->AsyncModelInfer(&call->context, request_, &queue_);
    call->reader->Finish(&call->reply, &call->status, call);
  }

  // Waits for the next answer; whether the call succeeded.
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    if (!queue_.Next(&tag, &ok)) return false;
    const std::unique_ptr<Call> call(static_cast<Call*>(tag));
    if (!call->status.ok() && ++complaints_ <= 3) {
      std::fprintf(stderr, "headroom_many_calls: %s\n", call->status.error_message().c_str());
    }
    return call->status.ok();
  }

 private:
  const std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
  const inference::ModelInferRequest request_;
  grpc::CompletionQueue queue_;
  int complaints_ = 0;
};

// Sleeps through the clock: waits for what nobody notifies.
void PauseUntil(TimePoint until) {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  while (RealClock().Now() < until) RealClock().WaitUntil(mutex, never, until);
}

int Main(const std::vector<std::string>& words) {
  std::int64_t calls = 0;
  std::int64_t in_flight = 0;
  double rate = 0;
  const bool paced = words.size() == 5;
  if ((words.size() != 4 && !paced) || !absl::SimpleAtoi(words[2], &calls) || !absl::SimpleAtoi(words[3], &in_flight) ||
      in_flight < 1 || (paced && (!absl::SimpleAtod(words[4], &rate) || rate <= 0))) {
    std::fprintf(stderr, "headroom_many_calls: HOST:PORT MODEL CALLS IN_FLIGHT [CALLS_A_SECOND]\n");
    return 2;
  }
  Caller caller(words[0], words[1]);
  const TimePoint began = RealClock().Now();
  std::int64_t started = 0;
  std::int64_t failed = 0;
  for (; started < std::min(calls, in_flight); ++started) caller.Start();
  for (std::int64_t ended = 0; ended < calls; ++ended) {
    if (!caller.Next()) ++failed;
    if (started < calls) {
      if (paced)
        PauseUntil(began +
                   std::chrono::duration_cast<Duration>(std::chrono::duration<double>(static_cast<double>(started) / rate)));
      caller.Start();
      ++started;
    }
  }
  std::printf("answered %lld failed %lld seconds %.3f\n", static_cast<long long>(calls - failed), static_cast<long long>(failed),
              Seconds(RealClock().Now() - began));
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) { return headroom::Main({argv + 1, argv + argc}); }
