#include "runtime/model_spec.h"

#include <algorithm>

namespace headroom {

int SequenceAxisOf(const std::vector<std::int64_t>& dims) {
  const auto found = std::find(dims.begin(), dims.end(), kSequenceAxis);
  return found == dims.end() ? -1 : static_cast<int>(found - dims.begin());
}

const char* NameOf(Precision precision) {
  switch (precision) {
    case Precision::kFp32: return "FP32";
    case Precision::kBf16: return "BF16";
    case Precision::kFp16: return "FP16";
    case Precision::kAutocast: return "AUTOCAST";
  }
  return "";
}

bool ModelSpec::variable_length() const {
  return std::any_of(inputs.begin(), inputs.end(), [](const InputSpec& input) { return SequenceAxisOf(input.dims) >= 0; });
}

int ModelSpec::mask_index() const {
  const auto found =
      std::find_if(inputs.begin(), inputs.end(), [](const InputSpec& input) { return input.role == InputRole::kMask; });
  return found == inputs.end() ? -1 : static_cast<int>(found - inputs.begin());
}

}  // namespace headroom
