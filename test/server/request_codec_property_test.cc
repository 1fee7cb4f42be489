// Whatever a client sends is refused in fit words, or what was decoded of it keeps every promise of request_codec.h.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "server/request_codec.h"
#include "test/server/wire_request.h"

namespace headroom {
namespace {

using inference::ModelInferRequest;

constexpr TimePoint kNow{std::chrono::seconds(1000)};

// P with two outputs, buckets up to 64, cut up to 100 and alone up to 200.
ModelSpec TieredSpec() {
  ModelSpec spec = ToySpec();
  spec.outputs.push_back({.name = "tokens", .type = DataType::kFp32, .dims = {kSequenceAxis}});
  spec.sequence.buckets = {32, 64};
  spec.sequence.tiers = {{100, TierAction::kTruncate}, {200, TierAction::kSolo}};
  return spec;
}

// Requests that are wrong in all ways that a generator can think of, and now and then right.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  ModelInferRequest Next() {
    while (true) {
      ModelInferRequest request = Seed();
      const std::size_t changes = Below(4);
      for (std::size_t i = 0; i < changes; ++i) Change(request);
      if (Below(5) != 0) return request;
      std::string bytes = request.SerializeAsString();
      for (std::size_t flips = 1 + Below(3); flips > 0 && !bytes.empty(); --flips) {
        bytes[Below(bytes.size())] = static_cast<char>(Below(256));
      }
      if (ModelInferRequest damaged; damaged.ParseFromString(bytes)) return damaged;
    }
  }

 private:
  std::size_t Below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }
  template <class T>
  T Pick(std::initializer_list<T> among) {
    return *(among.begin() + Below(among.size()));
  }
  std::int64_t Number() {
    return Pick<std::int64_t>({0,
                               1,
                               2,
                               3,
                               -1,
                               7,
                               31,
                               32,
                               33,
                               64,
                               65,
                               100,
                               101,
                               201,
                               999,
                               1000,
                               4096,
                               4097,
                               1LL << 31,
                               1LL << 60,
                               std::numeric_limits<std::int64_t>::max(),
                               std::numeric_limits<std::int64_t>::min()});
  }

  ModelInferRequest Seed() {
    const std::size_t rows = 1 + Below(3);
    const auto length = static_cast<std::int64_t>(Pick({1, 2, 3, 31, 33, 70, 110, 200}));
    std::vector<Ids> ids;
    std::vector<Ids> masks;
    for (std::size_t i = 0; i < rows; ++i) {
      ids.push_back(Row(length, static_cast<std::int64_t>(Below(1000))));
      Ids& mask = masks.emplace_back(Row(length, 0));
      std::fill_n(mask.begin(), 1 + Below(mask.size()), 1);
    }
    if (Below(2) == 0) masks.clear();
    ModelInferRequest request = ToyWireRequest(ids, masks);
    if (Below(3) == 0) MakeTyped(request);
    return request;
  }

  static void MakeTyped(ModelInferRequest& request) {
    for (int i = 0; i < request.inputs_size(); ++i) {
      const std::string& raw = request.raw_input_contents(i);
      for (std::size_t at = 0; at < raw.size(); at += 8) {
        const double value = LoadElement(DataType::kInt64, reinterpret_cast<const std::byte*>(&raw[at]));
        request.mutable_inputs(i)->mutable_contents()->add_int64_contents(static_cast<std::int64_t>(value));
      }
    }
    request.clear_raw_input_contents();
  }

  void Change(ModelInferRequest& request) {
    switch (Below(5)) {
      case 0:
      case 1:
        if (request.inputs_size() > 0)
          ChangeInput(request, static_cast<int>(Below(static_cast<std::size_t>(request.inputs_size()))));
        break;
      case 2: ChangeRaw(request); break;
      case 3: ChangeParameters(request); break;
      case 4: ChangeLists(request); break;
    }
  }

  void ChangeInput(ModelInferRequest& request, int index) {
    auto* const input = request.mutable_inputs(index);
    switch (Below(6)) {
      case 0:
        if (input->shape_size() > 0)
          input->set_shape(static_cast<int>(Below(static_cast<std::size_t>(input->shape_size()))), Number());
        break;
      case 1: input->add_shape(Number()); break;
      case 2:
        if (input->shape_size() > 0) input->mutable_shape()->RemoveLast();
        break;
      case 3: input->set_datatype(Pick({"INT32", "INT64", "BOOL", "FP16", "", "BYTES"})); break;
      case 4: input->set_name(Pick({"input_ids", "attention_mask", "token_type_ids", ""})); break;
      case 5: ChangeContents(*input->mutable_contents()); break;
    }
  }

  void ChangeContents(inference::InferTensorContents& contents) {
    switch (Below(4)) {
      case 0: contents.add_int64_contents(Number()); break;
      case 1:
        if (contents.int64_contents_size() > 0) contents.mutable_int64_contents()->RemoveLast();
        break;
      case 2:
        if (contents.int64_contents_size() > 0) contents.set_int64_contents(0, Number());
        break;
      case 3: contents.add_bytes_contents("bytes"); break;
    }
  }

  void ChangeRaw(ModelInferRequest& request) {
    if (request.raw_input_contents_size() == 0 || Below(8) == 0) {
      request.add_raw_input_contents(std::string(Below(40), '\1'));
      return;
    }
    std::string& raw =
        *request.mutable_raw_input_contents(static_cast<int>(Below(static_cast<std::size_t>(request.raw_input_contents_size()))));
    switch (Below(3)) {
      case 0: raw.resize(Below(raw.size() + 20)); break;
      case 1:
        if (!raw.empty()) raw[Below(raw.size())] = static_cast<char>(Below(256));
        break;
      case 2:
        if (raw.size() >= 8)
          StoreElement(DataType::kInt64, static_cast<double>(Below(1002)),
                       reinterpret_cast<std::byte*>(&raw[Below(raw.size() / 8) * 8]));
        break;
    }
  }

  void ChangeParameters(ModelInferRequest& request) {
    auto& parameter =
        (*request.mutable_parameters())[Pick({"timeout", "priority", "explain", "sequence_id", "shared_memory_region", "other"})];
    switch (Below(5)) {
      case 0: parameter.set_int64_param(Number()); break;
      case 1: parameter.set_uint64_param(static_cast<std::uint64_t>(Number())); break;
      case 2: parameter.set_bool_param(true); break;
      case 3: parameter.set_string_param("text"); break;
      case 4: parameter.set_double_param(1.5); break;
    }
  }

  void ChangeLists(ModelInferRequest& request) {
    switch (Below(4)) {
      case 0:
        if (request.inputs_size() > 0) *request.add_inputs() = request.inputs(0);
        break;
      case 1:
        if (request.inputs_size() > 1) request.mutable_inputs()->SwapElements(0, 1);
        break;
      case 2:
        if (request.inputs_size() > 0) request.mutable_inputs()->RemoveLast();
        break;
      case 3: request.add_outputs()->set_name(Pick({"row", "tokens", "none"})); break;
    }
  }

  std::mt19937_64 random_;
};

// Whether `size` bytes from `data` on lie within the message's contents or what was made of them.
bool LiesWithin(const std::byte* data, std::size_t size, const ModelInferRequest& request, const InputTensors& tensors) {
  const auto within = [&](const std::byte* begin, std::size_t length) { return data >= begin && data + size <= begin + length; };
  for (const std::string& raw : request.raw_input_contents()) {
    if (within(reinterpret_cast<const std::byte*>(raw.data()), raw.size())) return true;
  }
  return std::any_of(tensors.converted.begin(), tensors.converted.end(),
                     [&](const HostTensor& tensor) { return within(tensor.data.get(), tensor.bytes().size()); });
}

// The first broken promise of what was accepted, "" where there is none. The model is P with tiers.
std::string BrokenPromise(const ModelInferRequest& request, const DecodedRequest& decoded, const ServedModel& model) {
  const Request::Parts& parts = decoded.parts;
  const std::size_t rows = parts.rows.size();
  if (rows < 1 || rows > 4096) return "the number of rows";
  if (parts.inputs.size() != 2 || parts.inputs[0].data == nullptr) return "the inputs";
  const auto length = static_cast<std::size_t>(parts.client_length);
  for (const RequestInput& input : parts.inputs) {
    if (input.data != nullptr && !LiesWithin(input.data, rows * length * 8, request, decoded.tensors)) return "a view";
  }
  std::int64_t longest_cut = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    const Request::Row& row = parts.rows[i];
    if (row.length < 1 || row.length > parts.client_length) return "a length";
    const auto placed = model.instances.front().ladder.Place(row.length);
    if (!placed.ok() || placed->bucket != row.placement.bucket || placed->kept_length != row.placement.kept_length ||
        placed->alone != row.placement.alone || row.placement.kept_length > row.length) {
      return "a placement";
    }
    if (row.placement.kept_length < row.length) longest_cut = std::max(longest_cut, row.length);
    for (std::int64_t position = 0; position < row.length; ++position) {
      const double id = LoadElement(DataType::kInt64, parts.inputs[0].data + (i * length + static_cast<std::size_t>(position)) * 8);
      if (id < 0 || id > 999) return "a value";
    }
  }
  if (decoded.truncated_from != longest_cut) return "truncated_from";
  if (std::set<int>(decoded.outputs.begin(), decoded.outputs.end()).size() != decoded.outputs.size()) return "an output twice";
  if (std::any_of(decoded.outputs.begin(), decoded.outputs.end(), [](int output) { return output < 0 || output > 1; }))
    return "an output";
  if (decoded.outputs.empty() || parts.deadline < kNow || parts.priority < 0) return "the rest";
  return "";
}

TEST_CASE("whatever comes is refused in fit words, or keeps every promise", "[request_codec]") {
  constexpr int kMessages = 25'000;
  const std::uint64_t seed = std::random_device{}();
  const auto model = ServedOnPaper(TieredSpec());
  Mutator mutator(seed);
  const google::protobuf::LogSilencer no_word_about_damaged_text;
  int accepted = 0;
  for (int i = 0; i < kMessages; ++i) {
    const ModelInferRequest request = mutator.Next();
    const auto decoded = DecodeRequest(request, *model, {}, kNow, kForever);
    std::string broken;
    if (decoded.ok()) {
      ++accepted;
      broken = BrokenPromise(request, *decoded, *model);
    } else if (decoded.status().code() != absl::StatusCode::kInvalidArgument || decoded.status().message().empty() ||
               decoded.status().message().size() >= 1000) {
      broken = std::string(decoded.status().message());
    }
    if (broken.empty()) continue;
    FAIL("seed " << seed << ", message " << i << ": " << broken << "\n" << request.ShortDebugString());
  }
  CAPTURE(seed, accepted);
  std::cout << "request_codec: seed " << seed << ", " << accepted << " of " << kMessages << " mutated messages accepted\n";
  CHECK(accepted > kMessages / 20);
  CHECK(accepted < kMessages * 19 / 20);
}

}  // namespace
}  // namespace headroom
