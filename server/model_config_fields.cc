#include "server/model_config_fields.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <vector>

namespace headroom {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kFirstOwnNumber = 1000;

constexpr FieldTreatment kHonoured = FieldTreatment::kHonoured;
constexpr FieldTreatment kIgnored = FieldTreatment::kIgnored;
constexpr FieldTreatment kRefused = FieldTreatment::kRefused;

constexpr FieldRule kRules[] = {
    {"name", kHonoured, "must be the folder's name; absent, it is the folder's name"},
    {"platform", kHonoured, "`pytorch_libtorch` or absent: there is one runtime"},
    {"backend", kHonoured, "`pytorch` or absent: there is one runtime"},
    {"runtime", kRefused, "it names another library or a Python program to run the model with"},
    {"version_policy.latest.num_versions", kHonoured, "one version is served, the newest; a wish for more is a warning"},
    {"version_policy.all", kIgnored, "one version is served, the newest"},
    {"version_policy.specific.versions", kHonoured, "the newest of those listed is served"},
    {"max_batch_size", kHonoured, "most rows of a batch; 0: no batch dimension, each request runs alone"},
    {"input.name", kHonoured, "an argument of `forward`, or `NAME__0` for its place"},
    {"input.data_type", kHonoured, "the types that TorchScript has: no strings, no unsigned type but 8 bits"},
    {"input.format", kIgnored, "a note for image clients; the tensor goes to the model as it came"},
    {"input.dims", kHonoured, "without the batch dimension; `-1` is the sequence axis, one at most"},
    {"input.reshape", kRefused, "the model would get another shape than clients send; reshape inside the module"},
    {"input.is_shape_tensor", kRefused, "only TensorRT has shape tensors"},
    {"input.allow_ragged_batch", kRefused, "rows are padded and masked, not laid end to end"},
    {"input.optional", kHonoured, "for a mask, or an input with a `pad_value`"},
    {"input.is_non_linear_format_io", kRefused, "only TensorRT has such layouts"},
    {"output.name", kHonoured, "a key of the module's dict, or the output of its place in a tuple or list"},
    {"output.data_type", kHonoured, "as an input's"},
    {"output.dims", kHonoured, "as an input's; `-1` is cut back to the row's own length"},
    {"output.reshape", kRefused, "clients would get another shape than the model made; reshape inside the module"},
    {"output.label_filename", kIgnored, "labels belong to the classification extension, which is not served"},
    {"output.is_shape_tensor", kRefused, "only TensorRT has shape tensors"},
    {"output.is_non_linear_format_io", kRefused, "only TensorRT has such layouts"},
    {"batch_input", kRefused, "it describes ragged batches; rows are padded and masked instead"},
    {"batch_output", kRefused, "it describes ragged batches; rows are cut back to their own length instead"},
    {"optimization", kIgnored, "hints on speed, which change no answer; staging memory is pinned in any case"},
    {"dynamic_batching.preferred_batch_size", kHonoured, "a batch of so many rows does not wait for more"},
    {"dynamic_batching.max_queue_delay_microseconds", kHonoured, "how long a row may wait for company; 0: not at all"},
    {"dynamic_batching.preserve_ordering", kIgnored, "a stream is answered in request order anyway; separate calls have none"},
    {"dynamic_batching.priority_levels", kHonoured, "1 is the most urgent; 0: no priorities"},
    {"dynamic_batching.default_priority_level", kHonoured, "of requests that name none; from 1 to `priority_levels`"},
    {"dynamic_batching.default_queue_policy.timeout_action", kHonoured,
     "`REJECT`; `DELAY` is refused, since expired work is never run"},
    {"dynamic_batching.default_queue_policy.default_timeout_microseconds", kHonoured, "bound on the wait; 0: none"},
    {"dynamic_batching.default_queue_policy.allow_timeout_override", kHonoured,
     "always so: a request's own timeout counts, since an absent field reads as false"},
    {"dynamic_batching.default_queue_policy.max_queue_size", kHonoured, "waiting rows; 0: 1024, since no queue is endless"},
    {"dynamic_batching.priority_queue_policy", kRefused, "one policy holds for all priorities"},
    {"sequence_batching", kRefused, "no state is kept between requests (lengths are set in `sequence`)"},
    {"ensemble_scheduling", kRefused, "each model is one TorchScript module; join the steps inside it"},
    {"instance_group.name", kIgnored, "workers have no names"},
    {"instance_group.kind", kHonoured,
     "`KIND_CPU` lets a module that names a GPU in its graph run on the CPU; which devices are used is `--device`'s"},
    {"instance_group.count", kHonoured, "workers a device, the largest count of all groups; `--workers` has precedence"},
    {"instance_group.rate_limiter", kIgnored, "the memory budget decides what runs at once"},
    {"instance_group.gpus", kIgnored, "devices are chosen by `--device`"},
    {"instance_group.secondary_devices", kRefused, "only TensorRT runs on them"},
    {"instance_group.profile", kIgnored, "only TensorRT has optimization profiles"},
    {"instance_group.passive", kRefused, "every worker takes work"},
    {"instance_group.host_policy", kIgnored, "there are no host policies"},
    {"default_model_filename", kHonoured, "`model.pt` or absent"},
    {"cc_model_filenames", kRefused, "another file would be meant on some devices; the model is always `model.pt`"},
    {"metric_tags", kIgnored, "metrics carry the labels that are listed, and no others"},
    {"parameters", kIgnored, "settings of Triton's own PyTorch backend; modules are frozen and run in inference mode"},
    {"model_warmup", kIgnored, "every bucket is warmed at load in any case, with values from `value_range`"},
    {"model_operations", kRefused, "no libraries are loaded into the server"},
    {"model_transaction_policy.decoupled", kRefused, "a request has one answer"},
    {"model_repository_agents", kRefused, "no agents are run, and a check that one should make would be left out"},
    {"response_cache.enable", kRefused, "no answers are kept; a service that was sized for a cache would be overrun"},
    {"model_metrics", kIgnored, "histograms have buckets of their own"},
};

const FieldRule* FindRule(const std::string& field) {
  const auto* found =
      std::find_if(std::begin(kRules), std::end(kRules), [&](const FieldRule& rule) { return field == rule.field; });
  return found == std::end(kRules) ? nullptr : found;
}

// Whether each lead byte is followed by as many continuation bytes as it announces. Enough for protobuf to send the text and for
// a terminal to show it.
bool IsUtf8(const std::string& text) {
  std::size_t follow = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (follow > 0) {
      if ((byte & 0xC0) != 0x80) return false;
      --follow;
    } else if (byte >= 0xC2 && byte <= 0xDF) {
      follow = 1;
    } else if ((byte & 0xF0) == 0xE0) {
      follow = 2;
    } else if (byte >= 0xF0 && byte <= 0xF4) {
      follow = 3;
    } else if (byte >= 0x80) {
      return false;
    }
  }
  return follow == 0;
}

class FieldWalk {
 public:
  explicit FieldWalk(ConfigReport& report) : report_(report) {}

  // `path` has indexes and is for people, `field` has none and is for the table; both end in a dot unless empty. `decided` is
  // true inside a field that a rule has spoken for.
  void Walk(const Message& message, const std::string& path, const std::string& field, bool decided) {
    std::vector<const FieldDescriptor*> set;
    message.GetReflection()->ListFields(message, &set);
    for (const FieldDescriptor* descriptor : set) {
      const std::string here = path + descriptor->name();
      bool descend_decided = decided || descriptor->number() >= kFirstOwnNumber;
      if (!descend_decided) {
        if (const FieldRule* rule = FindRule(field + descriptor->name())) {
          Apply(*rule, message, descriptor, here);
          descend_decided = true;
        } else if (descriptor->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
          report_.Fault(here, "is not a field that Headroom knows");
        }
      }
      CheckValues(message, descriptor, here, field + descriptor->name(), descend_decided);
    }
  }

 private:
  void Apply(const FieldRule& rule, const Message& message, const FieldDescriptor* descriptor, const std::string& path) {
    if (rule.treatment == kHonoured) return;
    for (const std::string& name : NamesOf(message, descriptor, path)) {
      if (rule.treatment == kRefused) {
        report_.Fault(name, absl::StrCat("is not supported: ", rule.reason));
      } else {
        report_.Warn(name, absl::StrCat("is ignored: ", rule.reason));
      }
    }
  }

  // The entries of a map with text keys are named one by one; anything else by its path.
  static std::vector<std::string> NamesOf(const Message& message, const FieldDescriptor* descriptor, const std::string& path) {
    if (!descriptor->is_map() || descriptor->message_type()->map_key()->cpp_type() != FieldDescriptor::CPPTYPE_STRING)
      return {path};
    std::vector<std::string> names;
    const Reflection* reflection = message.GetReflection();
    for (int i = 0; i < reflection->FieldSize(message, descriptor); ++i) {
      const Message& entry = reflection->GetRepeatedMessage(message, descriptor, i);
      const std::string key = entry.GetReflection()->GetString(entry, descriptor->message_type()->map_key());
      names.push_back(absl::StrCat(path, "[\"", absl::Utf8SafeCHexEscape(key.substr(0, 128)), "\"]"));
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  void CheckValues(const Message& message, const FieldDescriptor* descriptor, const std::string& path, const std::string& field,
                   bool decided) {
    const Reflection* reflection = message.GetReflection();
    const bool repeated = descriptor->is_repeated();
    const int count = repeated ? reflection->FieldSize(message, descriptor) : 1;
    for (int i = 0; i < count; ++i) {
      const std::string here = repeated ? absl::StrCat(path, "[", i, "]") : path;
      if (descriptor->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        const Message& inner =
            repeated ? reflection->GetRepeatedMessage(message, descriptor, i) : reflection->GetMessage(message, descriptor);
        Walk(inner, here + ".", field + ".", decided);
      } else if (descriptor->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
        const int value =
            repeated ? reflection->GetRepeatedEnumValue(message, descriptor, i) : reflection->GetEnumValue(message, descriptor);
        if (descriptor->enum_type()->FindValueByNumber(value) == nullptr) {
          report_.Fault(here, absl::StrCat(value, " is not a value of ", descriptor->enum_type()->name()));
        }
      } else if (descriptor->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        const std::string text =
            repeated ? reflection->GetRepeatedString(message, descriptor, i) : reflection->GetString(message, descriptor);
        if (!IsUtf8(text)) report_.Fault(here, "is not UTF-8");
      }
    }
  }

  ConfigReport& report_;
};

}  // namespace

std::span<const FieldRule> FieldRules() { return kRules; }

const char* NameOf(FieldTreatment treatment) {
  switch (treatment) {
    case FieldTreatment::kHonoured: return "honoured";
    case FieldTreatment::kIgnored: return "ignored";
    case FieldTreatment::kRefused: return "refused";
  }
  return "";
}

void CheckFields(const inference::ModelConfig& config, ConfigReport& report) { FieldWalk(report).Walk(config, "", "", false); }

}  // namespace headroom
