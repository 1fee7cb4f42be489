#include "server/sha256.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

namespace headroom {

namespace {

class Digest {
 public:
  bool Start() { return context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1; }
  bool Add(const char* bytes, std::size_t size) { return EVP_DigestUpdate(context_.get(), bytes, size) == 1; }
  absl::StatusOr<std::string> Finish() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    if (EVP_DigestFinal_ex(context_.get(), digest.data(), &size) != 1) return absl::InternalError("SHA-256 failed");
    return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(digest.data()), size));
  }

 private:
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_{EVP_MD_CTX_new(), &EVP_MD_CTX_free};
};

}  // namespace

absl::StatusOr<std::string> Sha256(int file) {
  Digest digest;
  if (!digest.Start()) return absl::InternalError("SHA-256 is not available");
  std::vector<char> block(1 << 20);
  off_t offset = 0;
  while (true) {
    const ssize_t got = pread(file, block.data(), block.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::InternalError(absl::StrCat("cannot be read: ", std::strerror(errno)));
    if (got == 0) return digest.Finish();
    if (!digest.Add(block.data(), static_cast<std::size_t>(got))) return absl::InternalError("SHA-256 failed");
    offset += got;
  }
}

absl::StatusOr<std::string> Sha256Of(const std::string& bytes) {
  Digest digest;
  if (!digest.Start()) return absl::InternalError("SHA-256 is not available");
  if (!digest.Add(bytes.data(), bytes.size())) return absl::InternalError("SHA-256 failed");
  return digest.Finish();
}

}  // namespace headroom
