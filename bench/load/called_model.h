// What has to be known of a model to call it, and the messages that it is called with.
#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/channel.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/traffic/random.h"

namespace headroom {

struct ModelInput {
  std::string name;
  std::string datatype;             // INT64, INT32 or FP32
  std::vector<std::int64_t> shape;  // of one row, without the batch dimension; -1 is the row's length
  bool mask = false;                // all ones
};

// A model with a batch dimension. Thread-safe once it is made.
class CalledModel {
 public:
  // Asks the server. Of the inputs of variable length the first one of whole numbers is taken for the tokens; the others are masks,
  // which are sent with `with_masks` only. Inputs of fixed shape are always sent. INVALID_ARGUMENT for a model that cannot be
  // called so, else what the server answers.
  static absl::StatusOr<CalledModel> Ask(const std::shared_ptr<grpc::Channel>& channel, const std::string& name, bool with_masks);

  // A call of one row of `length` tokens, whose ids are drawn from 0 to `highest_id`; can be sent any number of times.
  grpc::ByteBuffer Message(std::int64_t length, std::int64_t highest_id, Random& random) const;

 private:
  std::string name_;
  std::vector<ModelInput> inputs_;  // those that are sent
};

}  // namespace headroom
