#include "server/message_scan.h"

#include <absl/strings/str_cat.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <limits>

#include "base/status_macros.h"
#include "proto/open_inference.pb.h"

namespace headroom {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using Request = inference::ModelInferRequest;
using Input = inference::ModelInferRequest::InferInputTensor;
using Output = inference::ModelInferRequest::InferRequestedOutputTensor;
using Contents = inference::InferTensorContents;

// Parameters of a request or a tensor; there is no use for more than a few.
constexpr int kMaxParameters = 256;
// Their bytes, all together: what stands inside of them is parsed uncounted, and may grow as NeedsOf says.
constexpr std::int64_t kMaxParameterBytes = 64 << 10;
// An identifier of the client's is sent back with the reply, whose memory is reckoned without it.
constexpr int kMaxIdBytes = 4096;
// A datatype's name; longer than any, since what is none is told by the check that knows the input's.
constexpr int kMaxDatatypeBytes = 64 << 10;
// Dimensions of a tensor, as far as memory goes; the limit that users set is checked where the input's name is known.
constexpr int kMaxDimensions = 4096;
// Fields that the message does not define, from a newer client.
constexpr int kMaxUnknownFields = 64;

absl::Status Malformed() { return absl::InvalidArgumentError("the request is not a ModelInferRequest message"); }

// Counts what may not be too many.
class Counter {
 public:
  Counter(const char* what, std::int64_t limit) : what_(what), limit_(limit) {}
  absl::Status Add(std::int64_t count = 1) {
    count_ += count;
    if (count_ <= limit_) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the request has too many ", what_, ", the limit is ", limit_));
  }

 private:
  const char* const what_;
  const std::int64_t limit_;
  std::int64_t count_ = 0;
};

class Scanner {
 public:
  Scanner(CodedInputStream& in, const RequestLimits& limits, RequestEnvelope& envelope)
      : in_(in),
        limits_(limits),
        envelope_(envelope),
        inputs_("inputs", limits.max_inputs),
        outputs_("outputs", limits.max_inputs) {}

  absl::Status ScanRequest() {
    Counter contents("raw_input_contents", limits_.max_inputs);
    while (const std::uint32_t tag = in_.ReadTag()) {
      switch (WireFormatLite::GetTagFieldNumber(tag)) {
        case Request::kModelNameFieldNumber: RETURN_IF_ERROR(ReadName(tag, envelope_.model_name)); continue;
        case Request::kModelVersionFieldNumber: RETURN_IF_ERROR(ReadName(tag, envelope_.model_version)); continue;
        case Request::kParametersFieldNumber: RETURN_IF_ERROR(SkipParameter(tag)); continue;
        case Request::kInputsFieldNumber:
          RETURN_IF_ERROR(inputs_.Add());
          RETURN_IF_ERROR(Inside(tag, [this] { return ScanInput(); }));
          continue;
        case Request::kOutputsFieldNumber:
          RETURN_IF_ERROR(outputs_.Add());
          RETURN_IF_ERROR(Inside(tag, [this] { return ScanOutput(); }));
          continue;
        case Request::kRawInputContentsFieldNumber: RETURN_IF_ERROR(contents.Add()); break;
        case Request::kIdFieldNumber: RETURN_IF_ERROR(ReadId(tag)); continue;
        default: RETURN_IF_ERROR(unknown_.Add());
      }
      RETURN_IF_ERROR(Skip(tag));
    }
    return in_.ConsumedEntireMessage() ? absl::OkStatus() : Malformed();
  }

 private:
  absl::Status ScanInput() {
    RequestEnvelope::Input& input = envelope_.inputs.emplace_back();
    Counter dimensions("dimensions", kMaxDimensions);
    while (const std::uint32_t tag = in_.ReadTag()) {
      switch (WireFormatLite::GetTagFieldNumber(tag)) {
        case Input::kShapeFieldNumber:
          // Packed, or one by one.
          if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
            RETURN_IF_ERROR(Inside(tag, [&]() -> absl::Status {
              envelope_.loose += Bytes{in_.BytesUntilLimit()};
              while (in_.BytesUntilLimit() > 0) {
                RETURN_IF_ERROR(dimensions.Add());
                RETURN_IF_ERROR(ReadDimension(input.shape));
              }
              return absl::OkStatus();
            }));
            continue;
          }
          RETURN_IF_ERROR(dimensions.Add());
          envelope_.loose += Bytes{2};  // at least
          if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_VARINT) break;
          RETURN_IF_ERROR(ReadDimension(input.shape));
          continue;
        case Input::kParametersFieldNumber: RETURN_IF_ERROR(SkipParameter(tag)); continue;
        case Input::kContentsFieldNumber: RETURN_IF_ERROR(Inside(tag, [this] { return ScanContents(); })); continue;
        case Input::kNameFieldNumber: RETURN_IF_ERROR(ReadTensorName(tag, input.name)); continue;
        case Input::kDatatypeFieldNumber: RETURN_IF_ERROR(SkipText(tag, "datatype", kMaxDatatypeBytes)); continue;
        default: RETURN_IF_ERROR(unknown_.Add());
      }
      RETURN_IF_ERROR(Skip(tag));
    }
    return absl::OkStatus();
  }

  absl::Status ScanOutput() {
    std::string& output = envelope_.outputs.emplace_back();
    while (const std::uint32_t tag = in_.ReadTag()) {
      switch (WireFormatLite::GetTagFieldNumber(tag)) {
        case Output::kParametersFieldNumber: RETURN_IF_ERROR(SkipParameter(tag)); continue;
        case Output::kNameFieldNumber: RETURN_IF_ERROR(ReadTensorName(tag, output)); continue;
        default: RETURN_IF_ERROR(unknown_.Add());
      }
      RETURN_IF_ERROR(Skip(tag));
    }
    return absl::OkStatus();
  }

  absl::Status ScanContents() {
    envelope_.typed_contents += Bytes{in_.BytesUntilLimit()};
    while (const std::uint32_t tag = in_.ReadTag()) {
      const int field = WireFormatLite::GetTagFieldNumber(tag);
      // No input of a model has strings; each would cost far more than its bytes.
      if (field == Contents::kBytesContentsFieldNumber) {
        return absl::InvalidArgumentError("bytes_contents are typed contents in a field that no input of a model takes");
      }
      // Numbers grow eightfold at most.
      if (field > Contents::kBytesContentsFieldNumber) RETURN_IF_ERROR(unknown_.Add());
      RETURN_IF_ERROR(Skip(tag));
    }
    return absl::OkStatus();
  }

  absl::Status Skip(std::uint32_t tag) {
    // The message has no groups, and fields inside one of a sender's own would be parsed uncounted.
    if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_START_GROUP) return Malformed();
    return WireFormatLite::SkipField(&in_, tag) ? absl::OkStatus() : Malformed();
  }

  // Another wire type than the field's would be parsed as an unknown field, uncounted.
  absl::Status ReadLength(std::uint32_t tag, int& length) {
    const bool delimited = WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    return delimited && in_.ReadVarintSizeAsInt(&length) ? absl::OkStatus() : Malformed();
  }

  // Longer than kMaxIdBytes it is refused, longer than kMaxId not kept.
  absl::Status ReadId(std::uint32_t tag) {
    int length = 0;
    RETURN_IF_ERROR(ReadLength(tag, length));
    RETURN_IF_ERROR(CheckText("id", length, kMaxIdBytes));
    envelope_.id.clear();
    if (length > kMaxId) return in_.Skip(length) ? absl::OkStatus() : Malformed();
    return in_.ReadString(&envelope_.id, length) ? absl::OkStatus() : Malformed();
  }

  static absl::Status CheckText(const char* what, int length, int limit) {
    if (length <= limit) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the ", what, " has ", length, " bytes, the limit is ", limit));
  }

  absl::Status SkipText(std::uint32_t tag, const char* what, int limit) {
    int length = 0;
    RETURN_IF_ERROR(ReadLength(tag, length));
    RETURN_IF_ERROR(CheckText(what, length, limit));
    return in_.Skip(length) ? absl::OkStatus() : Malformed();
  }

  absl::Status SkipParameter(std::uint32_t tag) {
    int length = 0;
    RETURN_IF_ERROR(ReadLength(tag, length));
    RETURN_IF_ERROR(parameters_.Add());
    RETURN_IF_ERROR(parameter_bytes_.Add(length));
    envelope_.loose += Bytes{length};
    return in_.Skip(length) ? absl::OkStatus() : Malformed();
  }

  // Runs `scan` on the embedded message that follows `tag`.
  template <class Scan>
  absl::Status Inside(std::uint32_t tag, const Scan& scan) {
    int length = 0;
    RETURN_IF_ERROR(ReadLength(tag, length));
    const auto outer = in_.PushLimit(length);
    RETURN_IF_ERROR(scan());
    if (in_.BytesUntilLimit() != 0) return Malformed();
    in_.PopLimit(outer);
    return absl::OkStatus();
  }

  absl::Status ReadName(std::uint32_t tag, std::string& name) {
    int length = 0;
    RETURN_IF_ERROR(ReadLength(tag, length));
    if (length > limits_.max_name_length) {
      return absl::InvalidArgumentError(
          absl::StrCat("the model's name or version has ", length, " bytes, the limit is ", limits_.max_name_length));
    }
    return in_.ReadString(&name, length) ? absl::OkStatus() : Malformed();
  }

  // A name that is checked where the model is known.
  absl::Status ReadTensorName(std::uint32_t tag, std::string& name) { return ReadShort(tag, limits_.max_name_length, name); }

  // Leaves `text` empty where it would be longer than `limit`.
  absl::Status ReadShort(std::uint32_t tag, int limit, std::string& text) {
    int length = 0;
    RETURN_IF_ERROR(ReadLength(tag, length));
    text.clear();
    if (length > limit) return in_.Skip(length) ? absl::OkStatus() : Malformed();
    return in_.ReadString(&text, length) ? absl::OkStatus() : Malformed();
  }

  absl::Status ReadDimension(std::vector<std::int64_t>& shape) {
    std::uint64_t dimension = 0;
    if (!in_.ReadVarint64(&dimension)) return Malformed();
    if (shape.size() <= static_cast<std::size_t>(limits_.max_rank)) shape.push_back(static_cast<std::int64_t>(dimension));
    return absl::OkStatus();
  }

  CodedInputStream& in_;
  const RequestLimits& limits_;
  RequestEnvelope& envelope_;
  Counter inputs_;
  Counter outputs_;
  Counter parameters_{"parameters", kMaxParameters};
  Counter parameter_bytes_{"bytes of parameters", kMaxParameterBytes};
  Counter unknown_{"unknown fields", kMaxUnknownFields};
};

}  // namespace

absl::Status ScanInferRequest(google::protobuf::io::ZeroCopyInputStream& bytes, const RequestLimits& limits,
                              RequestEnvelope& envelope) {
  CodedInputStream in(&bytes);
  in.SetTotalBytesLimit(std::numeric_limits<int>::max());
  return Scanner(in, limits, envelope).ScanRequest();
}

}  // namespace headroom
