#include "runtime/torch/extra_file.h"

#include <absl/strings/str_cat.h>
#include <caffe2/serialize/inline_container.h>
#include <sys/stat.h>

#include <memory>

#include "base/status_macros.h"
#include "runtime/model_archive.h"
#include "runtime/torch/descriptor_reader.h"
#include "runtime/torch/torch_error.h"

namespace headroom {

absl::StatusOr<std::optional<std::string>> ReadExtraFile(int descriptor, const std::string& name) {
  // libtorch trusts what it reads.
  RETURN_IF_ERROR(CheckModelArchive(descriptor).status());
  struct stat status = {};
  if (fstat(descriptor, &status) != 0) return absl::InvalidArgumentError("the model file cannot be read");
  absl::StatusOr<std::optional<std::string>> content = std::nullopt;
  const auto failure = CatchFailure([&] {
    caffe2::serialize::PyTorchStreamReader reader(
        std::make_shared<DescriptorReader>(descriptor, static_cast<std::size_t>(status.st_size)));
    const std::string record = absl::StrCat("extra/", name);
    if (!reader.hasRecord(record)) return;
    const std::size_t size = reader.getRecordSize(record);
    if (size > static_cast<std::size_t>(kLongestExtraFile.count)) {
      content =
          absl::InvalidArgumentError(absl::StrCat(name, " in the model file is longer than ", kLongestExtraFile.count, " bytes"));
      return;
    }
    // Into memory of ours: a tensor's would come from libtorch's allocator, which may not be set up yet.
    std::string text(size, '\0');
    if (size > 0) reader.getRecord(record, text.data(), size);
    content = std::move(text);
  });
  if (failure.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("the model file is damaged or not a TorchScript module: ", failure->text));
  }
  return content;
}

}  // namespace headroom
