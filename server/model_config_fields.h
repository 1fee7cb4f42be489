// What becomes of each field of Triton's ModelConfig: one table, which the walk over a configuration and docs/configuration.md
// share.
#pragma once

#include <span>
#include <string>

#include "proto/model_config.pb.h"
#include "server/model_config_report.h"

namespace headroom {

enum class FieldTreatment {
  kHonoured,  // read; its value is checked elsewhere
  kIgnored,   // the model is served all the same, with a warning
  kRefused,   // the model is not served, since its answers or its load would not be those that were asked for
};

// A row of the table. It speaks for the field and for everything inside it.
struct FieldRule {
  const char* field;  // without indexes: "input.dims"
  FieldTreatment treatment;
  const char* reason;
};

// In the order of the document. Every field below number 1000 is in it or inside one that is; those from 1000 on are Headroom's
// own and all honoured.
std::span<const FieldRule> FieldRules();

// "honoured", "ignored", "refused".
const char* NameOf(FieldTreatment treatment);

// Walks every field that is set, so that none is passed over in silence: refused fields, unknown enum values and text that is
// not UTF-8 are faults, ignored fields are warnings.
void CheckFields(const inference::ModelConfig& config, ConfigReport& report);

}  // namespace headroom
