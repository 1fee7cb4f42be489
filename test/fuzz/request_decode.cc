#include <absl/strings/escaping.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "batching/collator.h"
#include "server/host_needs.h"
#include "server/message_scan.h"
#include "server/request_codec.h"
#include "test/fakes/fake_device.h"
#include "test/fuzz/fuzz_models.h"
#include "test/fuzz/fuzz_targets.h"

namespace headroom {
namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;

constexpr TimePoint kNow{std::chrono::seconds(1000)};

// Small enough that a short message reaches each.
RequestLimits FuzzedLimits() {
  RequestLimits limits;
  limits.max_message_size = KiB(64);
  limits.max_inputs = 12;
  limits.max_rank = 5;
  limits.max_request_rows = 32;
  limits.max_name_length = 20;
  return limits;
}

// A client's fault, in words that are fit for a client.
void RequireFitRefusal(const absl::Status& status) {
  Require(absl::IsInvalidArgument(status), "a refusal is INVALID_ARGUMENT");
  const std::string text(status.message());
  Require(!text.empty() && text.size() < 1000, "a refusal says why, and not too much");
  Require(std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }),
          "a refusal has no control characters");
}

// What the scan tells is what the parser makes of the same bytes.
void RequireSameAsParsed(const RequestEnvelope& envelope, const ModelInferRequest& message, const RequestLimits& limits) {
  const auto short_name = [&](const std::string& name) {
    return name.size() <= static_cast<std::size_t>(limits.max_name_length) ? name : std::string();
  };
  Require(envelope.model_name == message.model_name() && envelope.model_version == message.model_version(), "the scanned model");
  Require(envelope.id == message.id() || (envelope.id.empty() && message.id().size() > kMaxId), "the scanned id");
  Require(static_cast<int>(envelope.inputs.size()) == message.inputs_size(), "the scanned inputs");
  for (int i = 0; i < message.inputs_size(); ++i) {
    const RequestEnvelope::Input& input = envelope.inputs[static_cast<std::size_t>(i)];
    Require(input.name == short_name(message.inputs(i).name()), "a scanned input's name");
    const auto& shape = message.inputs(i).shape();
    const auto kept = static_cast<std::ptrdiff_t>(std::min(shape.size(), limits.max_rank + 1));
    Require(std::equal(input.shape.begin(), input.shape.end(), shape.begin(), shape.begin() + kept), "a scanned shape");
  }
  Require(static_cast<int>(envelope.outputs.size()) == message.outputs_size(), "the scanned outputs");
  for (int i = 0; i < message.outputs_size(); ++i) {
    Require(envelope.outputs[static_cast<std::size_t>(i)] == short_name(message.outputs(i).name()), "a scanned output's name");
  }
}

// How the elements of a row lie: [outer, length, inner bytes]; written apart from the collator's own, which it judges.
struct Layout {
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  bool sequence = false;

  Layout(DataType type, const std::vector<std::int64_t>& dims) {
    for (const std::int64_t dim : dims) {
      if (dim == kSequenceAxis) {
        sequence = true;
        outer = inner;
        inner = 1;
      } else {
        inner *= dim;
      }
    }
    inner *= SizeOf(type);
  }
  std::int64_t steps(std::int64_t length) const { return sequence ? length : 1; }
  std::int64_t row_bytes(std::int64_t length) const { return outer * steps(length) * inner; }
};

bool LiesWithin(const std::byte* data, std::int64_t size, const ModelInferRequest& message, const InputTensors& tensors) {
  const auto within = [&](const std::byte* begin, std::size_t length) {
    return data >= begin && size <= static_cast<std::int64_t>(length) && data + size <= begin + length;
  };
  for (const std::string& raw : message.raw_input_contents()) {
    if (within(reinterpret_cast<const std::byte*>(raw.data()), raw.size())) return true;
  }
  return std::any_of(tensors.converted.begin(), tensors.converted.end(),
                     [&](const HostTensor& tensor) { return within(tensor.data.get(), tensor.bytes().size()); });
}

void RequireSoundRows(const ModelInferRequest& message, const DecodedRequest& decoded, const ServedModel& model,
                      const RequestLimits& limits) {
  const ModelSpec& spec = *model.spec;
  const Request::Parts& parts = decoded.parts;
  const auto rows = static_cast<std::int64_t>(parts.rows.size());
  Require(rows >= 1 && rows <= (spec.has_batch_dimension() ? limits.max_request_rows : 1), "the number of rows");
  Require(parts.inputs.size() == spec.inputs.size(), "an input for each of the model's");
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    const std::byte* const data = parts.inputs[i].data;
    if (data == nullptr) {
      Require(spec.inputs[i].optional, "an input is left out only where it may be");
      continue;
    }
    const Layout layout(spec.inputs[i].type, spec.inputs[i].dims);
    Require(LiesWithin(data, rows * layout.row_bytes(parts.client_length), message, decoded.tensors), "a view within the message");
  }
  for (const Request::Row& row : parts.rows) {
    const BucketLadder& ladder = model.instances.front().ladder;
    Require(!spec.variable_length() || (row.length >= 1 && row.length <= parts.client_length), "a row's length");
    Require(row.length <= ladder.longest(), "a row within the last tier");
    Require(row.placement.kept_length <= row.length, "what is kept of a row");
    Require(row.placement.kept_length <= row.placement.bucket || !spec.variable_length(), "a row within its bucket");
  }
  Require(
      !decoded.outputs.empty() && std::set<int>(decoded.outputs.begin(), decoded.outputs.end()).size() == decoded.outputs.size(),
      "each output once");
  Require(parts.deadline >= kNow && parts.priority >= 0 && parts.priority <= 3, "deadline and priority");
}

// Tells in each byte of an output where it belongs.
std::byte Mark(std::size_t output, std::int64_t row, std::int64_t outer, std::int64_t step, std::int64_t byte) {
  return static_cast<std::byte>(output * 101 + static_cast<std::size_t>(row * 37 + outer * 17 + step * 5 + byte));
}

void RequirePadded(const ModelSpec& spec, std::span<const QueuedRow> rows, const PaddedBatch& batch) {
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    const InputSpec& input = spec.inputs[i];
    const Layout layout(input.type, input.dims);
    const bool mask = input.role == InputRole::kMask;
    const std::int64_t width = SizeOf(input.type);
    std::array<std::byte, 8> padding{};
    std::array<std::byte, 8> one{};
    StoreElement(input.type, mask ? 0 : input.pad_value, padding.data());
    StoreElement(input.type, 1, one.data());
    const std::byte* at = batch.inputs[i].data.get();
    Require(batch.inputs[i].size().count == static_cast<std::int64_t>(rows.size()) * layout.row_bytes(batch.shape.length),
            "the size of a padded input");
    for (const QueuedRow& queued : rows) {
      const std::byte* const from = queued.request->InputRow(i, queued.index);
      const std::int64_t kept = layout.steps(queued.row().placement.kept_length);
      const std::int64_t client_steps = layout.steps(queued.request->client_length());
      for (std::int64_t outer = 0; outer < layout.outer; ++outer) {
        for (std::int64_t step = 0; step < layout.steps(batch.shape.length); ++step) {
          for (std::int64_t byte = 0; byte < layout.inner; ++byte, ++at) {
            const auto in_element = static_cast<std::size_t>(byte % width);
            std::byte wanted = padding[in_element];
            if (step < kept && from != nullptr) wanted = from[(outer * client_steps + step) * layout.inner + byte];
            if (step < kept && from == nullptr && mask) wanted = one[in_element];
            Require(*at == wanted, "a padded byte");
          }
        }
      }
    }
  }
}

std::vector<HostTensor> MarkedOutputs(const ModelSpec& spec, std::span<const QueuedRow> rows, const BatchShape& shape) {
  std::vector<HostTensor> outputs;
  for (std::size_t i = 0; i < spec.outputs.size(); ++i) {
    const Layout layout(spec.outputs[i].type, spec.outputs[i].dims);
    HostTensor tensor;
    tensor.type = spec.outputs[i].type;
    if (spec.has_batch_dimension()) tensor.shape.push_back(shape.rows);
    for (const std::int64_t dim : spec.outputs[i].dims) tensor.shape.push_back(dim == kSequenceAxis ? shape.length : dim);
    tensor.data = AllocateHost(tensor.size());
    std::byte* at = tensor.data.get();
    for (const QueuedRow& queued : rows) {
      for (std::int64_t outer = 0; outer < layout.outer; ++outer) {
        for (std::int64_t step = 0; step < layout.steps(shape.length); ++step) {
          for (std::int64_t byte = 0; byte < layout.inner; ++byte) {
            *at++ = Mark(i, static_cast<std::int64_t>(queued.index), outer, step, byte);
          }
        }
      }
    }
    outputs.push_back(std::move(tensor));
  }
  return outputs;
}

// Runs the rows in batches as a worker puts them together, on a device that is not there.
void RunRows(const ServedModel& model, const std::shared_ptr<Request>& request) {
  static FakeDevice device;
  const BucketLadder& ladder = model.instances.front().ladder;
  const std::vector<Request::Row> all = request->rows();
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::vector<QueuedRow>>> batches;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Placement& placement = all[i].placement;
    auto& same = batches[{placement.bucket, ladder.mixes_lengths() ? 0 : placement.kept_length}];
    const bool full =
        same.empty() || placement.alone || static_cast<std::int64_t>(same.back().size()) == model.spec->largest_batch();
    if (full) same.emplace_back();
    same.back().push_back({request, i});
  }
  for (const auto& [key, same] : batches) {
    for (const std::vector<QueuedRow>& rows : same) {
      std::int64_t longest = 0;
      for (const QueuedRow& row : rows) longest = std::max(longest, row.row().placement.kept_length);
      const BatchShape shape{static_cast<std::int64_t>(rows.size()), ladder.PaddedLength(key.first, longest)};
      Require(shape.length >= longest && shape.length <= std::max(key.first, longest),
              "the padded length is between row and bucket");
      const PaddedBatch batch = Collate(*model.spec, rows, shape, device);
      RequirePadded(*model.spec, rows, batch);
      Scatter(*model.spec, rows, shape, MarkedOutputs(*model.spec, rows, shape));
      for (std::size_t i = 0; i < rows.size(); ++i) request->RowSucceeded({.batch_rows = shape.rows, .bucket = key.first});
    }
  }
}

void RequireMarked(const ModelSpec& spec, const ModelInferResponse& reply, const DecodedRequest& decoded, const Request& request) {
  Require(reply.outputs_size() == static_cast<int>(decoded.outputs.size()), "the outputs that were asked for");
  Require(reply.raw_output_contents_size() == reply.outputs_size(), "contents for each output");
  for (int o = 0; o < reply.outputs_size(); ++o) {
    const auto index = static_cast<std::size_t>(decoded.outputs[static_cast<std::size_t>(o)]);
    const OutputSpec& output = spec.outputs[index];
    const Layout layout(output.type, output.dims);
    const std::string& raw = reply.raw_output_contents(o);
    std::int64_t told = SizeOf(output.type);
    for (const std::int64_t dim : reply.outputs(o).shape()) told *= dim;
    Require(reply.outputs(o).name() == output.name && told == static_cast<std::int64_t>(raw.size()), "an output's name and size");
    const char* at = raw.data();
    for (std::size_t row = 0; row < request.rows().size(); ++row) {
      const std::int64_t kept = layout.steps(request.rows()[row].placement.kept_length);
      for (std::int64_t outer = 0; outer < layout.outer; ++outer) {
        for (std::int64_t step = 0; step < layout.steps(request.output_length()); ++step) {
          for (std::int64_t byte = 0; byte < layout.inner; ++byte, ++at) {
            const std::byte wanted = step < kept ? Mark(index, static_cast<std::int64_t>(row), outer, step, byte) : std::byte{0};
            Require(static_cast<std::byte>(*at) == wanted, "an output's byte is its row's");
          }
        }
      }
    }
  }
}

}  // namespace

void FuzzRequestDecode(std::string_view bytes) {
  const google::protobuf::LogSilencer no_word_about_damaged_text;
  static const RequestLimits limits = FuzzedLimits();
  if (static_cast<std::int64_t>(bytes.size()) > limits.max_message_size.count) return;
  // In blocks of a few bytes, as gRPC's slices may cut a message anywhere.
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()), bytes.size() % 2 == 0 ? 7 : -1);
  RequestEnvelope envelope;
  const absl::Status scanned = ScanInferRequest(stream, limits, envelope);
  if (!scanned.ok()) return RequireFitRefusal(scanned);
  const ServedModel& model = FuzzedModel(envelope.model_name);
  const HostNeeds needs = NeedsOf(envelope, Bytes{static_cast<std::int64_t>(bytes.size())}, *model.spec, limits);
  ModelInferRequest message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  RequireSameAsParsed(envelope, message, limits);
  std::int64_t held = static_cast<std::int64_t>(bytes.size()) + static_cast<std::int64_t>(message.SpaceUsedLong());
  Require(held <= needs.request.count, "a parsed message takes no more than was reserved for it");

  TailRows tail;
  auto decoded = DecodeRequest(message, model, limits, kNow, kForever, &tail);
  if (!decoded.ok()) return RequireFitRefusal(decoded.status());
  RequireSoundRows(message, *decoded, model, limits);
  for (const HostTensor& tensor : decoded->tensors.converted) held += tensor.size().count;
  Require(held <= needs.request.count, "a decoded request takes no more than was reserved for it");

  std::optional<Reply> reply;
  decoded->parts.done = [&reply](Reply answer) {
    Require(!reply, "a request is answered once");
    reply = std::move(answer);
  };
  const auto request = std::make_shared<Request>(std::move(decoded->parts));
  RunRows(model, request);
  Require(reply && reply->status.ok(), "a request is answered with its last row");
  ModelInferResponse response;
  EncodeReply(message, *decoded, model, *std::move(reply), &response);
  RequireMarked(*model.spec, response, *decoded, *request);
  std::int64_t outputs = 0;
  for (const std::string& raw : response.raw_output_contents()) outputs += static_cast<std::int64_t>(raw.size());
  Require(2 * outputs <= needs.reply.count, "a reply takes no more than was reserved for it");
  Require(response.id() == message.id(), "the id comes back");
  Require(ModelInferResponse().ParseFromString(response.SerializeAsString()), "a reply can be read");
}

}  // namespace headroom
