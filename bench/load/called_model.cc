#include "bench/load/called_model.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <grpc/support/time.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/open_inference.grpc.pb.h"

namespace headroom {
namespace {

constexpr std::int64_t kAskMilliseconds = 30'000;
constexpr std::int64_t kVaries = -1;

bool Varies(const ModelInput& input) { return std::find(input.shape.begin(), input.shape.end(), kVaries) != input.shape.end(); }

template <class Element>
std::string Elements(std::int64_t count, std::int64_t low, std::int64_t high, Random& random) {
  std::string bytes(static_cast<std::size_t>(count) * sizeof(Element), '\0');
  for (char* to = bytes.data(); count > 0; --count, to += sizeof(Element)) {
    const auto element = static_cast<Element>(UniformInteger(random, low, high));
    std::memcpy(to, &element, sizeof(Element));
  }
  return bytes;
}

std::string Content(const ModelInput& input, std::int64_t count, std::int64_t highest_id, Random& random) {
  const std::int64_t low = input.mask ? 1 : 0;
  const std::int64_t high = input.mask ? 1 : highest_id;
  if (input.datatype == "INT64") return Elements<std::int64_t>(count, low, high, random);
  if (input.datatype == "INT32") return Elements<std::int32_t>(count, low, high, random);
  return Elements<float>(count, low, high, random);
}

}  // namespace

absl::StatusOr<CalledModel> CalledModel::Ask(const std::shared_ptr<grpc::Channel>& channel, const std::string& name,
                                             bool with_masks) {
  const auto stub = inference::GRPCInferenceService::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(gpr_time_from_millis(kAskMilliseconds, GPR_TIMESPAN));
  context.set_wait_for_ready(true);
  inference::ModelMetadataRequest request;
  request.set_name(name);
  inference::ModelMetadataResponse told;
  const grpc::Status status = stub->ModelMetadata(&context, request, &told);
  if (!status.ok()) return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  CalledModel model;
  model.name_ = name;
  bool has_tokens = false;
  for (const auto& tensor : told.inputs()) {
    ModelInput input;
    input.name = tensor.name();
    input.datatype = tensor.datatype();
    if (tensor.shape_size() < 1 || (input.datatype != "INT64" && input.datatype != "INT32" && input.datatype != "FP32")) {
      return absl::InvalidArgumentError(absl::StrCat("input ", input.name, " of ", input.datatype, " cannot be made up"));
    }
    input.shape.assign(tensor.shape().begin() + 1, tensor.shape().end());
    input.mask = Varies(input) && (has_tokens || input.datatype == "FP32");
    has_tokens = has_tokens || (Varies(input) && !input.mask);
    if (!input.mask || with_masks) model.inputs_.push_back(std::move(input));
  }
  return model;
}

grpc::ByteBuffer CalledModel::Message(std::int64_t length, std::int64_t highest_id, Random& random) const {
  inference::ModelInferRequest message;
  message.set_model_name(name_);
  for (const ModelInput& input : inputs_) {
    auto* const tensor = message.add_inputs();
    tensor->set_name(input.name);
    tensor->set_datatype(input.datatype);
    tensor->add_shape(1);
    std::int64_t count = 1;
    for (const std::int64_t dim : input.shape) {
      tensor->add_shape(dim == kVaries ? length : dim);
      count *= dim == kVaries ? length : dim;
    }
    message.add_raw_input_contents(Content(input, count, highest_id, random));
  }
  const grpc::Slice bytes(message.SerializeAsString());
  return grpc::ByteBuffer(&bytes, 1);
}

}  // namespace headroom
