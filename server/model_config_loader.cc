#include "server/model_config_loader.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/model_config_fields.h"
#include "server/model_config_validation.h"

namespace headroom {
namespace {

// Deep enough for every real field; a text nested deeper is an error instead of a stack overflow.
constexpr int kMaxNesting = 32;

// Keeps what the parser says. It calls an unknown field a warning, since it was told to read on past it: here it is a fault.
class ParseReport : public google::protobuf::io::ErrorCollector {
 public:
  explicit ParseReport(ConfigReport& report) : report_(report) {}

  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    report_.Fault(absl::StrCat("line ", line + 1, ", column ", column + 1), message);  // both count from 0
  }
  // The column is that of what follows the field's name, so it is better not told.
  void AddWarning(int line, google::protobuf::io::ColumnNumber, const std::string& message) override {
    report_.Fault(absl::StrCat("line ", line + 1), message);
  }

 private:
  ConfigReport& report_;
};

// False where the text ends in the middle of something, so that the message holds only a part of it.
bool Parse(const std::string& text, inference::ModelConfig& config, ConfigReport& report) {
  ParseReport parse_report(report);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&parse_report);
  parser.AllowUnknownField(true);
  parser.SetRecursionLimit(kMaxNesting);
  return parser.ParseFromString(text, &config);
}

void FillDynamicBatching(inference::ModelConfig& config) {
  if (config.max_batch_size() > 0) config.mutable_dynamic_batching();
  if (!config.has_dynamic_batching()) return;
  inference::ModelQueuePolicy& policy = *config.mutable_dynamic_batching()->mutable_default_queue_policy();
  policy.set_allow_timeout_override(true);
  if (policy.max_queue_size() == 0) policy.set_max_queue_size(static_cast<std::uint32_t>(QueueSpec{}.max_rows));
}

// As Triton completes a configuration, so that its clients find what they look for; and Headroom's own fields.
void FillDefaults(const std::string& folder, inference::ModelConfig& config) {
  config.set_name(folder);
  config.set_platform("pytorch_libtorch");
  config.set_backend("pytorch");
  config.set_default_model_filename("model.pt");
  if (config.version_policy().policy_choice_case() == inference::ModelVersionPolicy::POLICY_CHOICE_NOT_SET ||
      config.version_policy().has_latest()) {
    config.mutable_version_policy()->mutable_latest()->set_num_versions(1);
  }
  FillDynamicBatching(config);
  if (const int length = LengthInput(config); length >= 0) {
    config.mutable_input(length)->set_role(inference::ModelInput::TOKENS);
    inference::ModelSequence& sequence = *config.mutable_sequence();
    if (sequence.buckets().empty()) {
      for (const std::int64_t bucket : SequenceSpec{}.buckets) sequence.add_buckets(bucket);
    }
  }
  if (!config.memory().has_safety_margin()) config.mutable_memory()->set_safety_margin(ModelSpec{}.safety_margin);
}

InputRole RoleOf(inference::ModelInput::Role role) {
  switch (role) {
    case inference::ModelInput::TOKENS: return InputRole::kTokens;
    case inference::ModelInput::MASK: return InputRole::kMask;
    default: return InputRole::kOther;
  }
}

Padding PaddingOf(inference::ModelSequence::Padding padding) {
  switch (padding) {
    case inference::ModelSequence::BUCKET: return Padding::kBucket;
    case inference::ModelSequence::MULTIPLE_OF_8: return Padding::kMultipleOf8;
    case inference::ModelSequence::EXACT: return Padding::kExact;
    default: return Padding::kAuto;
  }
}

PaddingCheck PaddingCheckOf(inference::ModelSequence::PaddingCheck check) {
  switch (check) {
    case inference::ModelSequence::WARN: return PaddingCheck::kWarn;
    case inference::ModelSequence::OFF: return PaddingCheck::kOff;
    default: return PaddingCheck::kRefuse;
  }
}

InputSpec InputOf(const inference::ModelInput& input) {
  InputSpec spec;
  spec.name = input.name();
  spec.type = *ServedType(input.data_type());
  spec.dims.assign(input.dims().begin(), input.dims().end());
  spec.role = RoleOf(input.role());
  spec.optional = input.optional();
  if (input.has_value_range()) spec.value_range = ValueRange{input.value_range().min(), input.value_range().max()};
  spec.pad_value = input.pad_value();
  return spec;
}

SequenceSpec SequenceOf(const inference::ModelSequence& sequence) {
  SequenceSpec spec;
  if (!sequence.buckets().empty()) spec.buckets.assign(sequence.buckets().begin(), sequence.buckets().end());
  spec.padding = PaddingOf(sequence.padding());
  spec.padding_check = PaddingCheckOf(sequence.padding_check());
  spec.padding_safe = sequence.padding_safe();
  for (const inference::ModelSequence::Tier& tier : sequence.tier()) {
    const bool solo = tier.action() == inference::ModelSequence::Tier::SOLO;
    spec.tiers.push_back({tier.up_to(), solo ? TierAction::kSolo : TierAction::kTruncate});
  }
  return spec;
}

QueueSpec QueueOf(const inference::ModelDynamicBatching& batching) {
  const inference::ModelQueuePolicy& policy = batching.default_queue_policy();
  QueueSpec spec;
  if (policy.max_queue_size() > 0) spec.max_rows = policy.max_queue_size();
  spec.default_timeout = std::chrono::microseconds(policy.default_timeout_microseconds());
  spec.max_delay = std::chrono::microseconds(batching.max_queue_delay_microseconds());
  spec.preferred_rows.assign(batching.preferred_batch_size().begin(), batching.preferred_batch_size().end());
  spec.priority_levels = static_cast<std::int64_t>(batching.priority_levels());
  spec.default_priority = static_cast<std::int64_t>(batching.default_priority_level());
  return spec;
}

PrecisionSpec PrecisionOf(const inference::ModelPrecision& precision) {
  PrecisionSpec spec;
  switch (precision.mode()) {
    case inference::ModelPrecision::BF16: spec.wanted = Precision::kBf16; break;
    case inference::ModelPrecision::FP16: spec.wanted = Precision::kFp16; break;
    case inference::ModelPrecision::AUTOCAST: spec.wanted = Precision::kAutocast; break;
    case inference::ModelPrecision::AUTO: spec.automatic = true; break;
    default: break;
  }
  if (precision.has_min_cosine()) spec.min_cosine = precision.min_cosine();
  if (precision.has_max_error()) spec.max_error = precision.max_error();
  return spec;
}

// `config` is validated and complete.
ModelSpec SpecOf(const inference::ModelConfig& config) {
  ModelSpec spec;
  spec.name = config.name();
  spec.max_batch_rows = config.max_batch_size();
  for (const inference::ModelInput& input : config.input()) spec.inputs.push_back(InputOf(input));
  for (const inference::ModelOutput& output : config.output()) {
    spec.outputs.push_back({output.name(), *ServedType(output.data_type()), {output.dims().begin(), output.dims().end()}});
  }
  spec.sequence = SequenceOf(config.sequence());
  spec.safety_margin = config.memory().safety_margin();
  spec.fallback_model = config.memory().fallback_model();
  spec.precision = PrecisionOf(config.precision());
  spec.queue = QueueOf(config.dynamic_batching());
  spec.queue.max_calls = config.limits().max_concurrent_requests();
  spec.queue.max_bytes = Bytes{config.limits().max_queue_bytes()};
  for (const inference::ModelInstanceGroup& group : config.instance_group()) {
    spec.instances = std::max<std::int64_t>(spec.instances, group.count());  // none: no wish
    if (group.kind() == inference::ModelInstanceGroup::KIND_CPU) spec.meant_for_cpu = true;
  }
  return spec;
}

}  // namespace

absl::StatusOr<LoadedConfig> LoadModelConfig(const std::string& text, const std::string& folder) {
  ConfigReport report;
  LoadedConfig loaded;
  // A message that was read in part would show faults that the text does not have.
  if (Parse(text, loaded.config, report)) {
    CheckFields(loaded.config, report);
    ValidateModelConfig(loaded.config, folder, report);
  }
  if (!report.faults.empty()) return absl::InvalidArgumentError(absl::StrJoin(report.faults, "\n"));
  FillDefaults(folder, loaded.config);
  loaded.spec = SpecOf(loaded.config);
  loaded.warnings = std::move(report.warnings);
  return loaded;
}

}  // namespace headroom
