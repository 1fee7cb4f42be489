#include "server/model_config_validation.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "runtime/model_spec.h"

namespace headroom {
namespace {

void ValidateIdentity(const inference::ModelConfig& config, const std::string& folder, ConfigReport& report) {
  if (!IsModelName(folder)) {
    report.Fault("name",
                 absl::StrCat("the folder's name ", DoubleQuoted(folder), " is not of 1 to 128 letters, digits, '_' or '-'"));
  }
  if (!config.name().empty() && config.name() != folder) {
    report.Fault("name",
                 absl::StrCat(DoubleQuoted(config.name()), " is not the name of the model's folder, ", DoubleQuoted(folder)));
  }
  if (!config.platform().empty() && config.platform() != "pytorch_libtorch") {
    report.Fault("platform", absl::StrCat(DoubleQuoted(config.platform()), " is not served, only \"pytorch_libtorch\""));
  }
  if (!config.backend().empty() && config.backend() != "pytorch") {
    report.Fault("backend", absl::StrCat(DoubleQuoted(config.backend()), " is not served, only \"pytorch\""));
  }
  if (!config.default_model_filename().empty() && config.default_model_filename() != "model.pt") {
    report.Fault("default_model_filename",
                 absl::StrCat(DoubleQuoted(config.default_model_filename()), " is not served, only \"model.pt\""));
  }
}

void ValidateVersionPolicy(const inference::ModelVersionPolicy& policy, ConfigReport& report) {
  if (policy.latest().num_versions() > 1) {
    report.Warn("version_policy.latest.num_versions",
                absl::StrCat("one version is served, the newest, not ", policy.latest().num_versions()));
  }
  if (!policy.has_specific()) return;
  const auto& versions = policy.specific().versions();
  if (versions.empty()) report.Fault("version_policy.specific.versions", "lists no version");
  for (int i = 0; i < versions.size(); ++i) {
    if (versions[i] < 1) {
      report.Fault(absl::StrCat("version_policy.specific.versions[", i, "]"), absl::StrCat(versions[i], " is less than 1"));
    }
  }
}

void ValidateBatchSize(const inference::ModelConfig& config, ConfigReport& report) {
  if (config.max_batch_size() < 0) {
    report.Fault("max_batch_size", absl::StrCat(config.max_batch_size(), " is less than 0"));
  } else if (config.max_batch_size() > kMaxBatchRows) {
    report.Fault("max_batch_size", absl::StrCat(config.max_batch_size(), " is more than ", kMaxBatchRows));
  }
}

void ValidateQueuePolicy(const inference::ModelQueuePolicy& policy, const std::string& field, ConfigReport& report) {
  if (policy.timeout_action() == inference::ModelQueuePolicy::DELAY) {
    report.Fault(field + ".timeout_action", "DELAY is not supported: expired work is never run");
  }
  if (policy.default_timeout_microseconds() > kMaxWaitMicroseconds) {
    report.Fault(field + ".default_timeout_microseconds",
                 absl::StrCat(policy.default_timeout_microseconds(), " is more than a day, ", kMaxWaitMicroseconds));
  }
}

void ValidatePriorities(const inference::ModelDynamicBatching& batching, ConfigReport& report) {
  const std::uint64_t levels = batching.priority_levels();
  const std::uint64_t chosen = batching.default_priority_level();
  if (levels > kMaxPriorityLevels) {
    report.Fault("dynamic_batching.priority_levels", absl::StrCat(levels, " is more than ", kMaxPriorityLevels));
  } else if (levels == 0 && chosen != 0) {
    report.Fault("dynamic_batching.default_priority_level", absl::StrCat(chosen, " is set, but there are no priority_levels"));
  } else if (levels > 0 && (chosen < 1 || chosen > levels)) {
    report.Fault("dynamic_batching.default_priority_level",
                 absl::StrCat(chosen, " is not from 1 to the priority_levels, ", levels));
  }
}

void ValidateDynamicBatching(const inference::ModelConfig& config, ConfigReport& report) {
  if (!config.has_dynamic_batching()) return;
  const inference::ModelDynamicBatching& batching = config.dynamic_batching();
  const int largest = std::max(config.max_batch_size(), 1);
  for (int i = 0; i < batching.preferred_batch_size_size(); ++i) {
    const int size = batching.preferred_batch_size(i);
    if (size >= 1 && size <= largest) continue;
    report.Fault(absl::StrCat("dynamic_batching.preferred_batch_size[", i, "]"),
                 absl::StrCat(size, " is not from 1 to the largest batch, ", largest));
  }
  if (batching.max_queue_delay_microseconds() > kMaxWaitMicroseconds) {
    report.Fault("dynamic_batching.max_queue_delay_microseconds",
                 absl::StrCat(batching.max_queue_delay_microseconds(), " is more than a day, ", kMaxWaitMicroseconds));
  }
  ValidatePriorities(batching, report);
  ValidateQueuePolicy(batching.default_queue_policy(), "dynamic_batching.default_queue_policy", report);
}

void ValidateInstances(const inference::ModelConfig& config, ConfigReport& report) {
  for (int i = 0; i < config.instance_group_size(); ++i) {
    const int count = config.instance_group(i).count();
    if (count >= 0 && count <= kMaxInstances) continue;
    report.Fault(absl::StrCat("instance_group[", i, "].count"), absl::StrCat(count, " is not from 0 to ", kMaxInstances));
  }
}

// Checks that the lengths ascend from `floor` + 1; says which one does not, and from what.
class AscendingLengths {
 public:
  AscendingLengths(std::int64_t floor, ConfigReport& report) : last_(floor), report_(report) {}

  void Next(const std::string& field, std::int64_t length) {
    if (length < 1) {
      report_.Fault(field, absl::StrCat(length, " is less than 1"));
    } else if (length > kMaxLength) {
      report_.Fault(field, absl::StrCat(length, " is more than ", kMaxLength));
    } else if (length <= last_) {
      report_.Fault(field, absl::StrCat(length, " does not ascend from ", last_));
    }
    last_ = std::max(last_, length);
  }

 private:
  std::int64_t last_;
  ConfigReport& report_;
};

void ValidateTiers(const inference::ModelSequence& sequence, std::int64_t last_bucket, ConfigReport& report) {
  if (sequence.tier_size() > kMaxTiers) {
    report.Fault("sequence.tier", absl::StrCat(sequence.tier_size(), " tiers are more than ", kMaxTiers));
    return;
  }
  AscendingLengths lengths(last_bucket, report);
  for (int i = 0; i < sequence.tier_size(); ++i) {
    const std::string field = absl::StrCat("sequence.tier[", i, "]");
    lengths.Next(field + ".up_to", sequence.tier(i).up_to());
    if (sequence.tier(i).action() == inference::ModelSequence::Tier::UNSET) {
      report.Fault(field + ".action", "is missing: TRUNCATE or SOLO");
    }
  }
}

void ValidateSequence(const inference::ModelConfig& config, ConfigReport& report) {
  if (!config.has_sequence()) return;
  if (LengthInput(config) < 0) {
    report.Fault("sequence", "is set, but no input has a -1 dimension");
  }
  const inference::ModelSequence& sequence = config.sequence();
  if (sequence.buckets_size() > kMaxBuckets) {
    report.Fault("sequence.buckets", absl::StrCat(sequence.buckets_size(), " buckets are more than ", kMaxBuckets));
    return;
  }
  AscendingLengths lengths(0, report);
  for (int i = 0; i < sequence.buckets_size(); ++i) {
    lengths.Next(absl::StrCat("sequence.buckets[", i, "]"), sequence.buckets(i));
  }
  const std::int64_t last_bucket = sequence.buckets().empty()
                                       ? SequenceSpec{}.buckets.back()
                                       : *std::max_element(sequence.buckets().begin(), sequence.buckets().end());
  ValidateTiers(sequence, last_bucket, report);
}

void ValidateMemory(const inference::ModelConfig& config, ConfigReport& report) {
  if (!config.memory().has_safety_margin()) return;
  const double margin = config.memory().safety_margin();
  if (!(margin >= 0 && margin <= 1)) report.Fault("memory.safety_margin", absl::StrCat(margin, " is not from 0 to 1"));
}

void ValidatePrecision(const inference::ModelPrecision& precision, ConfigReport& report) {
  if (precision.has_min_cosine() && !(precision.min_cosine() > 0 && precision.min_cosine() <= 1)) {
    report.Fault("precision.min_cosine", absl::StrCat(precision.min_cosine(), " is not above 0 and at most 1"));
  }
  // Written so that NaN is a fault.
  if (precision.has_max_error() && !(precision.max_error() >= 0)) {
    report.Fault("precision.max_error", absl::StrCat(precision.max_error(), " is not 0 or more"));
  }
  const bool bounded = precision.has_min_cosine() || precision.has_max_error();
  if (precision.mode() == inference::ModelPrecision::AUTO && !bounded) {
    report.Fault("precision", "AUTO takes what keeps a bound: give min_cosine, max_error or both");
  }
  if (precision.mode() == inference::ModelPrecision::FP32 && bounded) {
    report.Fault("precision", "a bound says how far answers may be from those in FP32: give a mode besides it, AUTO for instance");
  }
}

void ValidateLimits(const inference::ModelLimits& limits, ConfigReport& report) {
  const auto check = [&](const char* field, std::int64_t value) {
    if (value < 0) report.Fault(absl::StrCat("limits.", field), absl::StrCat(value, " is negative; 0 is no limit"));
  };
  check("max_concurrent_requests", limits.max_concurrent_requests());
  check("max_queue_bytes", limits.max_queue_bytes());
}

}  // namespace

bool IsModelName(const std::string& name) {
  return !name.empty() && name.size() <= 128 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::int64_t LongestLength(const inference::ModelConfig& config) {
  const inference::ModelSequence& sequence = config.sequence();
  std::int64_t longest = sequence.buckets().empty() ? SequenceSpec{}.buckets.back() : 1;
  for (const std::int64_t bucket : sequence.buckets()) longest = std::max(longest, bucket);
  for (const inference::ModelSequence::Tier& tier : sequence.tier()) longest = std::max(longest, tier.up_to());
  return longest;
}

std::string DoubleQuoted(const std::string& text) {
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(text.substr(0, 128)), text.size() > 128 ? "…" : "", "\"");
}

void ValidateModelConfig(const inference::ModelConfig& config, const std::string& folder, ConfigReport& report) {
  ValidateIdentity(config, folder, report);
  ValidateVersionPolicy(config.version_policy(), report);
  ValidateBatchSize(config, report);
  ValidateTensors(config, report);
  ValidateSequence(config, report);
  ValidateMemory(config, report);
  ValidatePrecision(config.precision(), report);
  ValidateLimits(config.limits(), report);
  ValidateDynamicBatching(config, report);
  ValidateInstances(config, report);
}

}  // namespace headroom
