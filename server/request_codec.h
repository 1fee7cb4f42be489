// The one door between the wire's messages and rows: bytes → rows, validated, and answers → bytes.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "batching/request.h"
#include "batching/served_model.h"
#include "proto/open_inference.pb.h"
#include "server/input_tensors.h"
#include "server/options.h"
#include "server/tail_report.h"

namespace headroom {

struct DecodedRequest {
  InputTensors tensors;
  Request::Parts parts;      // all but `done`; its inputs are views into the message and `tensors`
  std::vector<int> outputs;  // which of the model's outputs to answer, in the order asked for
  bool explain = false;
  std::string served_by;            // another model that answers in place of the one asked for; empty: none does
  std::int64_t solo_rows = 0;       // rows that run alone, beyond the last bucket
  std::int64_t truncated_from = 0;  // the longest original length of a row that was cut; 0: none was
};

// `message` outlives what is returned. `tail` is told of rows beyond the last bucket, also where the request is refused for
// one: as far as its rows were placed. `grpc_deadline` is kForever where the call has none; `now` is when it arrived.
// INVALID_ARGUMENT naming the input, output or parameter and the limit.
absl::StatusOr<DecodedRequest> DecodeRequest(const inference::ModelInferRequest& message, const ServedModel& model,
                                             const RequestLimits& limits, TimePoint now, TimePoint grpc_deadline,
                                             TailRows* tail = nullptr);

// Fills `message` with a reply whose status is OK; takes its outputs.
void EncodeReply(const inference::ModelInferRequest& request, const DecodedRequest& decoded, const ServedModel& model, Reply reply,
                 inference::ModelInferResponse* message);

}  // namespace headroom
