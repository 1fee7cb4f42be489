// A model's file, held open from before it is hashed until it is loaded: what is loaded is what was hashed, whatever becomes of its
// name meanwhile.
#pragma once

#include <absl/status/statusor.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

namespace headroom {

// An open file or folder, closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

// Constant after construction.
class ModelFile {
 public:
  // Hashes the file. INTERNAL where it cannot be read.
  static absl::StatusOr<std::shared_ptr<const ModelFile>> Hash(Descriptor descriptor);

  int descriptor() const { return descriptor_.number(); }
  const std::string& sha256() const { return sha256_; }  // hexadecimal digits

  // A name by which this very file can be opened as long as this object lives.
  std::string path() const;

  // FAILED_PRECONDITION where the file was written to since it was hashed. A writer who may set the machine's clock can hide it.
  absl::Status CheckUnchanged() const;

 private:
  ModelFile(Descriptor descriptor, const struct stat& status, std::string sha256)
      : descriptor_(std::move(descriptor)), hashed_(status), sha256_(std::move(sha256)) {}

  const Descriptor descriptor_;
  const struct stat hashed_;  // before the first byte was read
  const std::string sha256_;
};

}  // namespace headroom
