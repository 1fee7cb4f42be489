#include "server/request_codec.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/status_macros.h"
#include "server/client_text.h"

namespace headroom {
namespace {

using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;

// The whole number ≥ 0 in a parameter; nullopt where it is absent.
absl::StatusOr<std::optional<std::int64_t>> WholeNumber(const Parameters& parameters, const char* name) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return std::nullopt;
  const inference::InferParameter& value = found->second;
  if (value.has_int64_param() && value.int64_param() >= 0) return value.int64_param();
  if (value.has_uint64_param() && value.uint64_param() <= std::numeric_limits<std::int64_t>::max()) {
    return static_cast<std::int64_t>(value.uint64_param());
  }
  return absl::InvalidArgumentError(absl::StrCat("parameter '", name, "' must be a whole number of at least 0"));
}

// Parameters that would change what the answer means, and are not there.
absl::Status RefuseUnsupported(const Parameters& parameters) {
  if (parameters.contains("shared_memory_region")) {
    return absl::InvalidArgumentError("parameter 'shared_memory_region' is not supported: send the contents in the message");
  }
  const auto sequence = parameters.find("sequence_id");
  if (sequence != parameters.end()) {
    const inference::InferParameter& id = sequence->second;
    const bool zero = id.int64_param() == 0 && id.uint64_param() == 0 && id.double_param() == 0;
    if (!zero || id.bool_param() || !id.string_param().empty()) {
      return absl::InvalidArgumentError("parameter 'sequence_id' is not supported: rows are independent of each other");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TimePoint> Deadline(const Parameters& parameters, const QueueSpec& queue, TimePoint now, TimePoint grpc_deadline) {
  ASSIGN_OR_RETURN(const std::optional<std::int64_t> asked, WholeNumber(parameters, "timeout"));
  Duration timeout = queue.default_timeout;
  if (asked && *asked > 0 && queue.timeout_override) {
    constexpr std::int64_t kLongest = std::chrono::duration_cast<std::chrono::microseconds>(Duration::max()).count();
    timeout = std::chrono::microseconds(std::min(*asked, kLongest));
  }
  return std::min(timeout > Duration::zero() ? After(now, timeout) : kForever, grpc_deadline);
}

absl::StatusOr<std::int64_t> Priority(const Parameters& parameters, const QueueSpec& queue) {
  ASSIGN_OR_RETURN(const std::optional<std::int64_t> asked, WholeNumber(parameters, "priority"));
  const bool usable = asked && *asked >= 1 && *asked <= queue.priority_levels;
  return usable ? *asked : queue.default_priority;
}

absl::StatusOr<std::vector<int>> SelectOutputs(const inference::ModelInferRequest& message, const ModelSpec& spec) {
  std::vector<int> selected;
  if (message.outputs_size() == 0) {
    for (int i = 0; i < static_cast<int>(spec.outputs.size()); ++i) selected.push_back(i);
    return selected;
  }
  for (const auto& output : message.outputs()) {
    const auto found = std::find_if(spec.outputs.begin(), spec.outputs.end(),
                                    [&](const OutputSpec& candidate) { return candidate.name == output.name(); });
    if (found == spec.outputs.end()) {
      return absl::InvalidArgumentError(absl::StrCat("output ", Quoted(output.name()), ": the model has no such output"));
    }
    const int index = static_cast<int>(found - spec.outputs.begin());
    if (std::find(selected.begin(), selected.end(), index) != selected.end()) {
      return absl::InvalidArgumentError(absl::StrCat("output ", Quoted(output.name()), ": it is asked for twice"));
    }
    for (const char* const unsupported : {"classification", "shared_memory_region"}) {
      if (output.parameters().contains(unsupported)) {
        return absl::InvalidArgumentError(
            absl::StrCat("output ", Quoted(output.name()), ": parameter '", unsupported, "' is not supported"));
      }
    }
    selected.push_back(index);
  }
  return selected;
}

const std::string& LengthInput(const ModelSpec& spec) {
  for (const InputSpec& input : spec.inputs) {
    if (input.role == InputRole::kTokens) return input.name;
  }
  return spec.inputs.front().name;
}

absl::Status PlaceRows(const ServedModel& model, const std::vector<std::int64_t>& lengths, DecodedRequest& decoded,
                       TailRows& tail) {
  for (const std::int64_t length : lengths) {
    // Every device's ladder has the same buckets and tiers.
    const auto placement = model.instances.front().ladder.Place(length);
    if (!placement.ok()) {
      ++tail.refused;
      tail.longest = std::max(tail.longest, length);
      return absl::InvalidArgumentError(
          absl::StrCat("input ", Quoted(LengthInput(*model.spec)), ": ", std::string(placement.status().message())));
    }
    const bool truncated = placement->kept_length < length;
    if (truncated) decoded.truncated_from = std::max(decoded.truncated_from, length);
    if (truncated || placement->alone) {
      ++(truncated ? tail.truncated : tail.solo);
      tail.longest = std::max(tail.longest, length);
    }
    decoded.parts.rows.push_back({length, *placement});
  }
  decoded.solo_rows = tail.solo;
  return absl::OkStatus();
}

// Refuses a reply that could not be sent: outputs along the sequence axis are as long as the client made its inputs, whatever the
// true lengths.
absl::Status CheckReplySize(const ModelSpec& spec, const DecodedRequest& decoded, const RequestLimits& limits) {
  Bytes total{0};
  for (const int selected : decoded.outputs) {
    const OutputSpec& output = spec.outputs[static_cast<std::size_t>(selected)];
    std::vector<std::int64_t> factors = {SizeOf(output.type), static_cast<std::int64_t>(decoded.parts.rows.size())};
    for (const std::int64_t dim : output.dims) factors.push_back(dim == kSequenceAxis ? decoded.tensors.length : dim);
    const auto bytes = CheckedProduct(factors);
    if (!bytes.ok() || *bytes > limits.max_message_size.count - total.count) {
      return absl::InvalidArgumentError(absl::StrCat("output ", Quoted(output.name), ": the reply to ", decoded.parts.rows.size(),
                                                     " rows of ", decoded.tensors.length, " positions would be over the limit of ",
                                                     limits.max_message_size.count, " bytes"));
    }
    total += Bytes{*bytes};
  }
  return absl::OkStatus();
}

void SetInteger(Parameters* parameters, const char* name, std::int64_t value) { (*parameters)[name].set_int64_param(value); }

}  // namespace

absl::StatusOr<DecodedRequest> DecodeRequest(const inference::ModelInferRequest& message, const ServedModel& model,
                                             const RequestLimits& limits, TimePoint now, TimePoint grpc_deadline, TailRows* tail) {
  const ModelSpec& spec = *model.spec;
  DecodedRequest decoded;
  RETURN_IF_ERROR(RefuseUnsupported(message.parameters()));
  ASSIGN_OR_RETURN(decoded.parts.deadline, Deadline(message.parameters(), spec.queue, now, grpc_deadline));
  ASSIGN_OR_RETURN(decoded.parts.priority, Priority(message.parameters(), spec.queue));
  ASSIGN_OR_RETURN(decoded.outputs, SelectOutputs(message, spec));
  ASSIGN_OR_RETURN(decoded.tensors, BindInputs(message, spec, limits));
  ASSIGN_OR_RETURN(const std::vector<std::int64_t> lengths, TrueLengths(decoded.tensors, spec));
  TailRows unheard;
  RETURN_IF_ERROR(PlaceRows(model, lengths, decoded, tail != nullptr ? *tail : unheard));
  RETURN_IF_ERROR(CheckReplySize(spec, decoded, limits));
  RETURN_IF_ERROR(CheckValues(decoded.tensors, spec, lengths));
  const auto explain = message.parameters().find("explain");
  decoded.explain = explain != message.parameters().end() && explain->second.bool_param();
  decoded.parts.spec = model.spec;
  decoded.parts.wanted_outputs.assign(spec.outputs.size(), false);
  for (const int selected : decoded.outputs) decoded.parts.wanted_outputs[static_cast<std::size_t>(selected)] = true;
  decoded.parts.inputs = decoded.tensors.inputs;
  decoded.parts.client_length = decoded.tensors.length;
  decoded.parts.arrived = now;
  return decoded;
}

void EncodeReply(const inference::ModelInferRequest& request, const DecodedRequest& decoded, const ServedModel& model, Reply reply,
                 inference::ModelInferResponse* message) {
  message->set_model_name(model.spec->name);
  message->set_model_version(absl::StrCat(model.version));
  message->set_id(request.id());
  for (const int selected : decoded.outputs) {
    const auto index = static_cast<std::size_t>(selected);
    auto* const output = message->add_outputs();
    output->set_name(model.spec->outputs[index].name);
    output->set_datatype(NameOf(model.spec->outputs[index].type));
    output->mutable_shape()->Add(reply.shapes[index].begin(), reply.shapes[index].end());
    message->add_raw_output_contents(std::move(reply.outputs[index]));
  }
  auto* const parameters = message->mutable_parameters();
  // Clients of streams ask to be told which answer is a request's last: here there is never another.
  const auto final_wanted = request.parameters().find("triton_enable_empty_final_response");
  if (final_wanted != request.parameters().end() && final_wanted->second.bool_param()) {
    (*parameters)["triton_final_response"].set_bool_param(true);
  }
  if (!decoded.served_by.empty()) (*parameters)["served_by"].set_string_param(decoded.served_by);
  if (decoded.truncated_from > 0) SetInteger(parameters, "truncated_from", decoded.truncated_from);
  if (!decoded.explain) return;
  SetInteger(parameters, "batch_rows", reply.report.batch_rows);
  SetInteger(parameters, "bucket", reply.report.bucket);
  SetInteger(parameters, "padded_length", reply.report.padded_length);
  SetInteger(parameters, "queue_us", Microseconds(reply.report.queue));
  SetInteger(parameters, "compute_us", Microseconds(reply.report.compute));
  SetInteger(parameters, "estimated_bytes", reply.report.estimated.count);
  SetInteger(parameters, "retries", reply.report.retries);
  SetInteger(parameters, "truncated_from", decoded.truncated_from);
  SetInteger(parameters, "solo_rows", decoded.solo_rows);
}

}  // namespace headroom
