#include "server/model_config_loader.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "server/model_config_fields.h"

namespace headroom {
namespace {

using Lines = std::vector<std::string>;

constexpr const char* kText = R"(
name: "P" backend: "pytorch" max_batch_size: 16
input [ { name: "ids" data_type: TYPE_INT64 dims: [ -1 ] role: TOKENS value_range { min: 0 max: 999 } pad_value: 0 },
        { name: "mask" data_type: TYPE_INT64 dims: [ -1 ] role: MASK optional: true } ]
output [ { name: "row" data_type: TYPE_FP32 dims: [ 4 ] } ]
sequence { buckets: [ 32, 64, 128 ] padding: BUCKET padding_check: OFF tier { up_to: 256 action: TRUNCATE } }
dynamic_batching { max_queue_delay_microseconds: 0 }
)";

// The text with one piece of it replaced. An empty piece stands for the end.
std::string With(const std::string& piece, const std::string& replacement, const std::string& text = kText) {
  if (piece.empty()) return text + replacement;
  const std::size_t at = text.find(piece);
  REQUIRE(at != std::string::npos);
  return text.substr(0, at) + replacement + text.substr(at + piece.size());
}

Lines FaultsOf(const std::string& text, const std::string& folder = "P") {
  const absl::StatusOr<LoadedConfig> loaded = LoadModelConfig(text, folder);
  if (loaded.ok()) return {};
  CHECK(loaded.status().code() == absl::StatusCode::kInvalidArgument);
  return absl::StrSplit(std::string(loaded.status().message()), '\n');
}

LoadedConfig Loaded(const std::string& text, const std::string& folder = "P") {
  absl::StatusOr<LoadedConfig> loaded = LoadModelConfig(text, folder);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return *std::move(loaded);
}

TEST_CASE("a configuration becomes a spec", "[model_config]") {
  const LoadedConfig loaded = Loaded(R"(
    max_batch_size: 64
    input [ { name: "ids" data_type: TYPE_INT32 dims: [ -1 ] role: TOKENS value_range { min: 1 max: 30521 } pad_value: 1 },
            { name: "mask" data_type: TYPE_BOOL dims: [ -1 ] role: MASK optional: true },
            { name: "scale" data_type: TYPE_FP16 dims: [ 2, 3 ] optional: true pad_value: 0.5 } ]
    output [ { name: "tokens" data_type: TYPE_BF16 dims: [ -1, 8 ] } ]
    sequence { buckets: [ 16, 32 ] padding: EXACT padding_check: WARN padding_safe: true
               tier { up_to: 64 action: TRUNCATE } tier { up_to: 128 action: SOLO } }
    memory { safety_margin: 0.2 }
    dynamic_batching { preferred_batch_size: [ 8, 16 ] max_queue_delay_microseconds: 500 priority_levels: 3 default_priority_level: 2
      default_queue_policy { max_queue_size: 7 default_timeout_microseconds: 9000 } }
    instance_group [ { count: 2 }, { count: 4 } ])");
  const ModelSpec& spec = loaded.spec;
  CHECK(spec.name == "P");
  CHECK(spec.max_batch_rows == 64);
  REQUIRE(spec.inputs.size() == 3);
  CHECK(spec.inputs[0].name == "ids");
  CHECK(spec.inputs[0].type == DataType::kInt32);
  CHECK(spec.inputs[0].dims == std::vector<std::int64_t>{-1});
  CHECK(spec.inputs[0].role == InputRole::kTokens);
  REQUIRE(spec.inputs[0].value_range.has_value());
  CHECK(spec.inputs[0].value_range->min == 1);
  CHECK(spec.inputs[0].value_range->max == 30521);
  CHECK(spec.inputs[0].pad_value == 1);
  CHECK(spec.inputs[1].role == InputRole::kMask);
  CHECK(spec.inputs[1].type == DataType::kBool);
  CHECK(spec.inputs[1].optional);
  CHECK(spec.inputs[2].role == InputRole::kOther);
  CHECK(spec.inputs[2].pad_value == 0.5);
  CHECK_FALSE(spec.inputs[2].value_range.has_value());
  REQUIRE(spec.outputs.size() == 1);
  CHECK(spec.outputs[0].type == DataType::kBf16);
  CHECK(spec.outputs[0].dims == std::vector<std::int64_t>{-1, 8});
  CHECK(spec.sequence.buckets == std::vector<std::int64_t>{16, 32});
  CHECK(spec.sequence.padding == Padding::kExact);
  CHECK(spec.sequence.padding_check == PaddingCheck::kWarn);
  CHECK(spec.sequence.padding_safe);
  REQUIRE(spec.sequence.tiers.size() == 2);
  CHECK(spec.sequence.tiers[0].up_to == 64);
  CHECK(spec.sequence.tiers[0].action == TierAction::kTruncate);
  CHECK(spec.sequence.tiers[1].action == TierAction::kSolo);
  CHECK(spec.safety_margin == 0.2);
  CHECK(spec.queue.max_rows == 7);
  CHECK(spec.queue.default_timeout == std::chrono::milliseconds(9));
  CHECK(spec.queue.max_delay == std::chrono::microseconds(500));
  CHECK(spec.queue.timeout_override);
  CHECK(spec.queue.preferred_rows == std::vector<std::int64_t>{8, 16});
  CHECK(spec.queue.priority_levels == 3);
  CHECK(spec.queue.default_priority == 2);
  CHECK(spec.instances == 4);
  CHECK_FALSE(spec.meant_for_cpu);
  CHECK(loaded.warnings.empty());
}

TEST_CASE("a precision is read with its bounds", "[model_config]") {
  const std::string tensors = R"(
    max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: 4 }
    output { name: "y" data_type: TYPE_FP32 dims: 4 } )";
  struct Case {
    const char* text;
    Precision wanted;
    bool automatic;
    std::optional<double> min_cosine;
    std::optional<double> max_error;
  };
  const std::vector<Case> cases = {
      {"", Precision::kFp32, false, {}, {}},
      {"precision { }", Precision::kFp32, false, {}, {}},
      {"precision { mode: FP32 }", Precision::kFp32, false, {}, {}},
      {"precision { mode: BF16 }", Precision::kBf16, false, {}, {}},
      {"precision { mode: FP16 max_error: 0 }", Precision::kFp16, false, {}, 0.0},
      {"precision { mode: AUTOCAST min_cosine: 0.999 max_error: 0.5 }", Precision::kAutocast, false, 0.999, 0.5},
      {"precision { mode: AUTO min_cosine: 1 }", Precision::kFp32, true, 1.0, {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const PrecisionSpec precision = Loaded(tensors + c.text).spec.precision;
    CHECK(precision.wanted == c.wanted);
    CHECK(precision.automatic == c.automatic);
    CHECK(precision.min_cosine == c.min_cosine);
    CHECK(precision.max_error == c.max_error);
  }
  const std::vector<std::pair<const char*, std::string>> faults = {
      {"precision { mode: AUTO }", "precision: AUTO takes what keeps a bound: give min_cosine, max_error or both"},
      {"precision { min_cosine: 0.9 }",
       "precision: a bound says how far answers may be from those in FP32: give a mode besides it, AUTO for instance"},
      {"precision { mode: BF16 min_cosine: 1.1 }", "precision.min_cosine: 1.1 is not above 0 and at most 1"},
      {"precision { mode: BF16 min_cosine: 0 }", "precision.min_cosine: 0 is not above 0 and at most 1"},
      {"precision { mode: BF16 max_error: -1 }", "precision.max_error: -1 is not 0 or more"},
      {"precision { mode: BF16 max_error: nan }", "precision.max_error: nan is not 0 or more"},
  };
  for (const auto& [text, fault] : faults) {
    CAPTURE(text);
    CHECK(FaultsOf(tensors + text) == std::vector<std::string>{fault});
  }
}

TEST_CASE("what is left out has the defaults of a spec", "[model_config]") {
  const LoadedConfig loaded = Loaded(R"(
    max_batch_size: 4
    input { name: "ids" data_type: TYPE_INT64 dims: -1 }
    output { name: "row" data_type: TYPE_FP32 dims: 1 })");
  const ModelSpec defaults;
  CHECK(loaded.spec.sequence.buckets == defaults.sequence.buckets);
  CHECK(loaded.spec.sequence.padding == Padding::kAuto);
  CHECK(loaded.spec.sequence.padding_check == PaddingCheck::kRefuse);
  CHECK(loaded.spec.sequence.tiers.empty());
  CHECK(loaded.spec.safety_margin == defaults.safety_margin);
  CHECK(loaded.spec.queue.max_rows == defaults.queue.max_rows);
  CHECK(loaded.spec.queue.default_timeout == Duration{0});
  CHECK(loaded.spec.instances == 0);
}

TEST_CASE("the configuration in force is complete", "[model_config]") {
  const LoadedConfig variable = Loaded(R"(
    max_batch_size: 4
    input { name: "ids" data_type: TYPE_INT64 dims: -1 }
    output { name: "row" data_type: TYPE_FP32 dims: 1 })");
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.PrintToString(variable.config, &text);
  CHECK(text ==
        "name: \"P\" platform: \"pytorch_libtorch\" version_policy { latest { num_versions: 1 } } max_batch_size: 4 "
        "input { name: \"ids\" data_type: TYPE_INT64 dims: -1 role: TOKENS } output { name: \"row\" data_type: TYPE_FP32 dims: 1 } "
        "default_model_filename: \"model.pt\" "
        "dynamic_batching { default_queue_policy { allow_timeout_override: true max_queue_size: 1024 } } backend: \"pytorch\" "
        "sequence { buckets: 32 buckets: 64 buckets: 128 buckets: 256 buckets: 512 } memory { safety_margin: 0.05 } ");

  const LoadedConfig fixed = Loaded(R"(
    input { name: "x" data_type: TYPE_FP32 dims: 16 }
    output { name: "y" data_type: TYPE_FP32 dims: 16 })");
  CHECK_FALSE(fixed.config.has_sequence());
  CHECK_FALSE(fixed.config.has_dynamic_batching());
  CHECK_FALSE(fixed.spec.has_batch_dimension());
}

TEST_CASE("where no input is TOKENS, the first with a -1 that is no mask gives the length", "[model_config]") {
  const LoadedConfig loaded = Loaded(R"(
    max_batch_size: 4
    input [ { name: "mask" data_type: TYPE_INT64 dims: -1 role: MASK }, { name: "fixed" data_type: TYPE_FP32 dims: 3 },
            { name: "frames" data_type: TYPE_FP32 dims: [ -1, 80 ] }, { name: "pitch" data_type: TYPE_FP32 dims: -1 } ]
    output { name: "row" data_type: TYPE_FP32 dims: 1 })");
  std::vector<InputRole> roles;
  for (const InputSpec& input : loaded.spec.inputs) roles.push_back(input.role);
  CHECK(roles == std::vector<InputRole>{InputRole::kMask, InputRole::kOther, InputRole::kTokens, InputRole::kOther});
}

TEST_CASE("each fault is told with its field's path", "[model_config]") {
  struct Case {
    const char* piece;
    const char* replacement;
    Lines faults;
  };
  const std::vector<Case> cases = {
      {"name: \"P\"", "name: \"Q\"", {"name: \"Q\" is not the name of the model's folder, \"P\""}},
      {"backend: \"pytorch\"", "backend: \"onnxruntime\"", {"backend: \"onnxruntime\" is not served, only \"pytorch\""}},
      {"backend: \"pytorch\"",
       "platform: \"tensorrt_plan\"",
       {"platform: \"tensorrt_plan\" is not served, only \"pytorch_libtorch\""}},
      {"", "default_model_filename: \"../x\"", {"default_model_filename: \"../x\" is not served, only \"model.pt\""}},
      {"max_batch_size: 16", "max_batch_size: -4", {"max_batch_size: -4 is less than 0"}},
      {"max_batch_size: 16", "max_batch_size: 65537", {"max_batch_size: 65537 is more than 65536"}},
      {"", "version_policy { specific { versions: [ 3, 0 ] } }", {"version_policy.specific.versions[1]: 0 is less than 1"}},
      {"", "version_policy { specific { } }", {"version_policy.specific.versions: lists no version"}},
      {"", "instance_group { count: -1 }", {"instance_group[0].count: -1 is not from 0 to 256"}},
      {"", "memory { safety_margin: -0.1 }", {"memory.safety_margin: -0.1 is not from 0 to 1"}},
      {"", "memory { safety_margin: 1.5 }", {"memory.safety_margin: 1.5 is not from 0 to 1"}},
      {"", "memory { safety_margin: nan }", {"memory.safety_margin: nan is not from 0 to 1"}},

      {"name: \"ids\"", "", {"input[0].name: is missing"}},
      {"name: \"mask\"", "name: \"ids\"", {"input[1].name: \"ids\" is there twice"}},
      {"name: \"ids\"", "name: \"a\\nb\"", {"input[0].name: \"a\\nb\" holds a control character"}},
      {"name: \"ids\"", "name: \"\\xff\"", {"input[0].name: is not UTF-8"}},
      {"data_type: TYPE_FP32", "", {"output[0].data_type: is missing"}},
      {"data_type: TYPE_FP32",
       "data_type: TYPE_STRING",
       {"output[0].data_type: TYPE_STRING is not supported: TorchScript has no strings, and no unsigned type but TYPE_UINT8"}},
      {"data_type: TYPE_FP32",
       "data_type: TYPE_UINT32",
       {"output[0].data_type: TYPE_UINT32 is not supported: TorchScript has no strings, and no unsigned type but TYPE_UINT8"}},
      {"data_type: TYPE_FP32", "data_type: 99", {"output[0].data_type: 99 is not a value of DataType"}},
      {"dims: [ 4 ]", "", {"output[0].dims: is missing"}},
      {"dims: [ 4 ]",
       "dims: [ 4, 0, -2 ]",
       {"output[0].dims[1]: 0 is neither -1 nor at least 1", "output[0].dims[2]: -2 is neither -1 nor at least 1"}},
      {"dims: [ 4 ]", "dims: [ -1, -1 ]", {"output[0].dims: has more than one -1; a tensor has one sequence axis at most"}},
      {"dims: [ 4 ]", "dims: [ 4294967296, 4294967296 ]", {"output[0].dims: a full batch would be more bytes than can be counted"}},
      {"dims: [ -1 ] role: TOKENS",
       "dims: [ 8 ] role: TOKENS",
       {"input[0].role: TOKENS gives the row's length, but the input has no -1 dimension",
        "input[1].role: a MASK needs another input with a -1 dimension", "sequence: is set, but no input has a -1 dimension"}},
      {"role: MASK",
       "role: TOKENS",
       {"input[1].optional: needs a pad_value to stand in for the input, or the role MASK",
        "input[1].role: is TOKENS, as input[0] is already"}},
      {"role: MASK", "", {"input[1].optional: needs a pad_value to stand in for the input, or the role MASK"}},
      {"dims: [ -1 ] role: MASK", "dims: [ -1, 1 ] role: MASK", {"input[1].role: a MASK has the dims [ -1 ] and no others"}},
      {"role: MASK", "role: MASK pad_value: 1", {"input[1].pad_value: 1 is not 0, which a MASK is padded with"}},
      {"role: MASK",
       "role: MASK value_range { min: 1 max: 1 }",
       {"input[1].value_range: [1, 1] does not hold a MASK's values, 0 and 1"}},
      {"pad_value: 0",
       "pad_value: 0 optional: true",
       {"input[0].optional: the input that gives the row's length cannot be left out"}},
      {"pad_value: 0", "pad_value: 1000", {"input[0].pad_value: 1000 is outside the input's value_range [0, 999]"}},
      {"pad_value: 0", "pad_value: 0.5", {"input[0].pad_value: 0.5 is no whole number, as INT64 needs"}},
      {"pad_value: 0", "pad_value: nan", {"input[0].pad_value: is not a finite number"}},
      {"min: 0 max: 999", "min: -inf max: inf", {}},
      {"min: 0 max: 999", "min: 0 max: nan", {"input[0].value_range: a bound is not a number"}},
      {"min: 0 max: 999", "min: 3 max: 2", {"input[0].value_range: min 3 is more than max 2"}},
      {"min: 0 max: 999", "min: 0", {"input[0].value_range: max is missing"}},
      {"min: 0 max: 999", "min: 0.2 max: 0.8", {"input[0].value_range: [0.2, 0.8] holds no INT64 value"}},
      {"min: 0 max: 999 } pad_value: 0",
       "min: 1 max: 1000000 }",
       {"input[0].pad_value: is missing, and its default 0 is outside the input's value_range [1, 1000000]"}},

      {"32, 64, 128", "64, 32, 128", {"sequence.buckets[1]: 32 does not ascend from 64"}},
      {"32, 64, 128", "32, 32", {"sequence.buckets[1]: 32 does not ascend from 32"}},
      {"32, 64, 128", "0, 32", {"sequence.buckets[0]: 0 is less than 1"}},
      {"32, 64, 128",
       "32, 1048577",
       {"sequence.buckets[1]: 1048577 is more than 1048576", "sequence.tier[0].up_to: 256 does not ascend from 1048577"}},
      {"up_to: 256", "up_to: 128", {"sequence.tier[0].up_to: 128 does not ascend from 128"}},
      {"action: TRUNCATE", "", {"sequence.tier[0].action: is missing: TRUNCATE or SOLO"}},
      {"action: TRUNCATE }",
       "action: TRUNCATE } tier { up_to: 200 action: SOLO }",
       {"sequence.tier[1].up_to: 200 does not ascend from 256"}},

      {"max_queue_delay_microseconds: 0",
       "preferred_batch_size: [ 16, 17, 0 ]",
       {"dynamic_batching.preferred_batch_size[1]: 17 is not from 1 to the largest batch, 16",
        "dynamic_batching.preferred_batch_size[2]: 0 is not from 1 to the largest batch, 16"}},
      {"max_queue_delay_microseconds: 0",
       "max_queue_delay_microseconds: 86400000001",
       {"dynamic_batching.max_queue_delay_microseconds: 86400000001 is more than a day, 86400000000"}},
      {"max_queue_delay_microseconds: 0",
       "priority_levels: 2",
       {"dynamic_batching.default_priority_level: 0 is not from 1 to the priority_levels, 2"}},
      {"max_queue_delay_microseconds: 0",
       "priority_levels: 2 default_priority_level: 3",
       {"dynamic_batching.default_priority_level: 3 is not from 1 to the priority_levels, 2"}},
      {"max_queue_delay_microseconds: 0",
       "default_priority_level: 1",
       {"dynamic_batching.default_priority_level: 1 is set, but there are no priority_levels"}},
      {"max_queue_delay_microseconds: 0",
       "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 86400000001 }",
       {"dynamic_batching.default_queue_policy.timeout_action: DELAY is not supported: expired work is never run",
        "dynamic_batching.default_queue_policy.default_timeout_microseconds: 86400000001 is more than a day, 86400000000"}},
  };
  for (const Case& one : cases) {
    INFO(one.piece << " → " << one.replacement);
    CHECK(FaultsOf(With(one.piece, one.replacement)) == one.faults);
  }
}

TEST_CASE("a model of fixed shapes has rules of its own", "[model_config]") {
  const std::string text = R"(
    input { name: "x" data_type: TYPE_UINT8 dims: 16 } output { name: "y" data_type: TYPE_FP32 dims: 16 })";
  CHECK(FaultsOf(text) == Lines{});
  CHECK(FaultsOf(With("", "dynamic_batching { max_queue_delay_microseconds: 0 }", text)) == Lines{});
  CHECK(FaultsOf(With("", "sequence { }", text)) == Lines{"sequence: is set, but no input has a -1 dimension"});
  CHECK(FaultsOf(With("TYPE_FP32 dims: 16", "TYPE_FP32 dims: -1", text)) ==
        Lines{"output[0].dims: has a -1, but no input has one that it could follow"});
  CHECK(FaultsOf(With("dims: 16", "dims: 16 optional: true pad_value: 256", text)) ==
        Lines{"input[0].pad_value: 256 is no UINT8 value", "input: at least one must not be optional, or a request has no size"});
  CHECK(FaultsOf(With("dims: 16", "dims: 16 value_range { min: 256 max: 300 }", text)) ==
        Lines{"input[0].value_range: [256, 300] holds no UINT8 value"});
  CHECK(FaultsOf(With("dims: 16", "dims: 16 value_range { min: 5 max: 6 }", text)) == Lines{});  // nothing is ever padded
}

TEST_CASE("all faults are told at once", "[model_config]") {
  CHECK(FaultsOf(R"(
    name: "Q" max_batch_size: -1 nothing_known: 3
    input { name: "x" data_type: TYPE_STRING dims: 0 no_such: { a: 1 } }
    sequence { buckets: [ 4, 2 ] }
    sequence_batching { } response_cache { enable: true })") ==
        Lines{"line 2: Message type \"inference.ModelConfig\" has no field named \"nothing_known\".",
              "line 3: Message type \"inference.ModelInput\" has no field named \"no_such\".",
              "sequence_batching: is not supported: no state is kept between requests (lengths are set in `sequence`)",
              "response_cache.enable: is not supported: no answers are kept; a service that was sized for a cache would be overrun",
              "name: \"Q\" is not the name of the model's folder, \"P\"", "max_batch_size: -1 is less than 0",
              "output: is missing: a model has at least one",
              "input[0].data_type: TYPE_STRING is not supported: TorchScript has no strings, and no unsigned type but TYPE_UINT8",
              "input[0].dims[0]: 0 is neither -1 nor at least 1", "sequence: is set, but no input has a -1 dimension",
              "sequence.buckets[1]: 2 does not ascend from 4"});
}

TEST_CASE("a text that does not parse is told by its place", "[model_config]") {
  CHECK(FaultsOf("this is { not a config") == Lines{"line 1: Message type \"inference.ModelConfig\" has no field named \"this\".",
                                                    "line 1, column 6: Expected \"{\", found \"is\"."});
  CHECK(FaultsOf(With("TOKENS", "TOKEN")) ==
        Lines{"line 3, column 70: Unknown enumeration value of \"TOKEN\" for field \"role\"."});
  CHECK(FaultsOf(With("", "sequence_batching { }")) == Lines{"line 8, column 19: Field \"sequence_batching\" is specified along "
                                                             "with field \"dynamic_batching\", another member of oneof "
                                                             "\"scheduling_choice\"."});
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "sequence {";
  CHECK(FaultsOf(deep).size() == 2);
  CHECK(FaultsOf("") == Lines{"input: is missing: a model has at least one", "output: is missing: a model has at least one"});
}

TEST_CASE("a folder that cannot be a model's is named", "[model_config]") {
  CHECK(FaultsOf(With("name: \"P\"", ""), "a b") ==
        Lines{"name: the folder's name \"a b\" is not of 1 to 128 letters, digits, '_' or '-'"});
  CHECK(FaultsOf(With("name: \"P\"", ""), std::string(128, 'a')) == Lines{});
  CHECK(FaultsOf(With("name: \"P\"", ""), std::string(129, 'a')).size() == 1);
  CHECK(FaultsOf(With("name: \"P\"", ""), "").size() == 1);
}

TEST_CASE("Triton's fields are honoured, ignored with a warning, or refused", "[model_config]") {
  const LoadedConfig loaded = Loaded(With("", R"(
    version_policy { latest { num_versions: 2 } }
    optimization { cuda { graphs: true } }
    parameters { key: "ENABLE_NVFUSER" value { string_value: "true" } }
    parameters { key: "INFERENCE_MODE" value { string_value: "true" } }
    instance_group [ { kind: KIND_GPU count: 2 gpus: [ 0 ] } ]
    model_warmup { name: "w" batch_size: 1 }
    model_transaction_policy { decoupled: false } response_cache { enable: false })"));
  CHECK(loaded.warnings ==
        Lines{"instance_group[0].gpus: is ignored: devices are chosen by `--device`",
              "optimization: is ignored: hints on speed, which change no answer; staging memory is pinned in any case",
              "parameters[\"ENABLE_NVFUSER\"]: is ignored: settings of Triton's own PyTorch backend; modules are frozen and run in "
              "inference mode",
              "parameters[\"INFERENCE_MODE\"]: is ignored: settings of Triton's own PyTorch backend; modules are frozen and run in "
              "inference mode",
              "model_warmup: is ignored: every bucket is warmed at load in any case, with values from `value_range`",
              "version_policy.latest.num_versions: one version is served, the newest, not 2"});
  CHECK(loaded.spec.instances == 2);

  for (const char* refused : {"input[0].reshape", "input[0].is_shape_tensor", "input[0].allow_ragged_batch"}) {
    const std::string field = std::string(refused).substr(9);
    const Lines faults =
        FaultsOf(With("pad_value: 0", absl::StrCat("pad_value: 0 ", field, field == "reshape" ? " { }" : ": true")));
    REQUIRE(faults.size() == 1);
    CHECK(faults[0].rfind(absl::StrCat(refused, ": is not supported: "), 0) == 0);
  }
}

// Every path from `type` down must meet a rule before it ends in a value.
void CheckReachesRules(const google::protobuf::Descriptor& type, const std::string& prefix) {
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *type.field(i);
    const std::string path = prefix + field.name();
    bool ruled = field.number() >= 1000;
    for (const FieldRule& rule : FieldRules()) ruled = ruled || path == rule.field;
    if (ruled) continue;
    INFO(path);
    REQUIRE(field.message_type() != nullptr);
    CHECK(field.message_type()->field_count() > 0);
    CheckReachesRules(*field.message_type(), path + ".");
  }
}

TEST_CASE("every field of Triton's has a rule, and every rule a field", "[model_config]") {
  CheckReachesRules(*inference::ModelConfig::descriptor(), "");
  for (const FieldRule& rule : FieldRules()) {
    INFO(rule.field);
    const google::protobuf::Descriptor* type = inference::ModelConfig::descriptor();
    for (const auto& name : absl::StrSplit(rule.field, '.')) {
      REQUIRE(type != nullptr);
      const google::protobuf::FieldDescriptor* field = type->FindFieldByName(std::string(name));
      REQUIRE(field != nullptr);
      type = field->message_type();
    }
  }
}

TEST_CASE("a group of CPU instances lets a graph be rewritten for the CPU, and asks for no workers", "[model_config]") {
  const LoadedConfig loaded = Loaded(With("", "instance_group { kind: KIND_CPU }"));
  CHECK(loaded.spec.meant_for_cpu);
  CHECK(loaded.spec.instances == 0);
  CHECK(loaded.warnings.empty());
  CHECK_FALSE(Loaded(With("", "instance_group { kind: KIND_GPU count: 1 }")).spec.meant_for_cpu);
}

TEST_CASE("docs/configuration.md tells what the code does with Triton's fields", "[model_config][docs]") {
  std::ifstream file(std::string(HEADROOM_SOURCE_DIR) + "/docs/configuration.md");
  REQUIRE(file.good());
  Lines rows;
  bool in_table = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("## ", 0) == 0) in_table = line == "## Triton's fields";
    if (in_table && line.rfind("| `", 0) == 0) rows.push_back(line);
  }
  Lines expected;
  for (const FieldRule& rule : FieldRules()) {
    expected.push_back(absl::StrCat("| `", rule.field, "` | ", NameOf(rule.treatment), " | ", rule.reason, " |"));
  }
  CHECK(rows == expected);
}

TEST_CASE("the example in docs/configuration.md loads without a warning", "[model_config][docs]") {
  std::ifstream file(std::string(HEADROOM_SOURCE_DIR) + "/docs/configuration.md");
  std::stringstream content;
  content << file.rdbuf();
  const std::string doc = content.str();
  const std::size_t begin = doc.find("name: \"minilm\"");
  REQUIRE(begin != std::string::npos);
  const LoadedConfig loaded = Loaded(doc.substr(begin, doc.find("```", begin) - begin), "minilm");
  CHECK(loaded.warnings.empty());
  CHECK(loaded.spec.max_batch_rows == 64);
}

}  // namespace
}  // namespace headroom
