#include "runtime/torch/extra_file.h"

#include <absl/strings/str_cat.h>
#include <caffe2/serialize/inline_container.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "runtime/torch/torch_error.h"

namespace headroom {
namespace {

class DescriptorReader final : public caffe2::serialize::ReadAdapterInterface {
 public:
  DescriptorReader(int descriptor, std::size_t size) : descriptor_(descriptor), size_(size) {}

  std::size_t size() const override { return size_; }

  // Less than asked for is what the caller takes for a failure.
  std::size_t read(std::uint64_t position, void* to, std::size_t count, const char*) const override {
    std::size_t done = 0;
    while (done < count) {
      const ssize_t got = pread(descriptor_, static_cast<char*>(to) + done, count - done, static_cast<off_t>(position + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

 private:
  const int descriptor_;
  const std::size_t size_;
};

}  // namespace

absl::StatusOr<std::optional<std::string>> ReadExtraFile(int descriptor, const std::string& name) {
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
