#include "runtime/output_check.h"

#include <absl/strings/str_cat.h>

namespace headroom {
namespace {

absl::Status CheckOutput(const ModelSpec& spec, const OutputSpec& output, const BatchShape& shape, const HostTensor& tensor) {
  if (tensor.type != output.type) {
    return absl::FailedPreconditionError(
        absl::StrCat("output '", output.name, "' is ", NameOf(tensor.type), ", declared is ", NameOf(output.type)));
  }
  std::vector<std::int64_t> wanted;
  if (spec.has_batch_dimension()) {
    if (tensor.shape.empty() || tensor.shape.front() != shape.rows) {
      return absl::FailedPreconditionError(absl::StrCat("output '", output.name, "' has the shape ", ShapeText(tensor.shape),
                                                        " for a batch of ", shape.rows,
                                                        " rows: its first dimension must be the rows"));
    }
    wanted.push_back(shape.rows);
  }
  for (const std::int64_t dim : output.dims) wanted.push_back(dim == kSequenceAxis ? shape.length : dim);
  if (tensor.shape != wanted) {
    return absl::FailedPreconditionError(absl::StrCat("output '", output.name, "' has the shape ", ShapeText(tensor.shape),
                                                      ", its declared dims ask for ", ShapeText(wanted)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOutputs(const ModelSpec& spec, const BatchShape& shape, const std::vector<HostTensor>& outputs) {
  if (outputs.size() != spec.outputs.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the module returns ", outputs.size(), " outputs, declared are ", spec.outputs.size()));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (absl::Status status = CheckOutput(spec, spec.outputs[i], shape, outputs[i]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace headroom
