#include "server/tls_files.h"

#include <absl/strings/str_cat.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace headroom {
namespace {

constexpr std::size_t kLargestFile = 1 << 20;

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

Bio Reader(const std::string& pem) { return {BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free}; }

// OpenSSL's own would ask at the terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return 0; }

Certificate FirstCertificate(const std::string& pem) {
  return {PEM_read_bio_X509(Reader(pem).get(), nullptr, &NoPassphrase, nullptr), &X509_free};
}

Key PrivateKey(const std::string& pem) {
  return {PEM_read_bio_PrivateKey(Reader(pem).get(), nullptr, &NoPassphrase, nullptr), &EVP_PKEY_free};
}

absl::StatusOr<std::string> ReadPem(const char* flag, const std::string& path) {
  absl::StatusOr<std::string> text = ReadSmallFile(path, kLargestFile);
  if (!text.ok()) return absl::FailedPreconditionError(absl::StrCat(flag, " ", std::string(text.status().message())));
  return text;
}

absl::Status Fault(const char* flag, const std::string& path, const char* what) {
  ERR_clear_error();  // of this thread, which is gRPC's: it would be found by the next handshake
  return absl::FailedPreconditionError(absl::StrCat(flag, " ", path, " ", what));
}

void WarnOfTime(X509& certificate) {
  const bool begun = X509_cmp_current_time(X509_get0_notBefore(&certificate)) < 0;
  const bool over = X509_cmp_current_time(X509_get0_notAfter(&certificate)) < 0;
  if (over) Log(LogLevel::kWarning, "the certificate of --tls-certificate is no longer valid: clients will refuse it");
  if (!begun) Log(LogLevel::kWarning, "the certificate of --tls-certificate is not valid yet: clients will refuse it");
}

}  // namespace

absl::StatusOr<TlsIdentity> ReadTlsIdentity(const TlsFiles& files) {
  TlsIdentity identity;
  ASSIGN_OR_RETURN(identity.certificate, ReadPem("--tls-certificate", files.certificate));
  ASSIGN_OR_RETURN(identity.key, ReadPem("--tls-key", files.key));
  const Certificate certificate = FirstCertificate(identity.certificate);
  if (certificate == nullptr) return Fault("--tls-certificate", files.certificate, "holds no certificate in PEM form");
  const Key key = PrivateKey(identity.key);
  if (key == nullptr) return Fault("--tls-key", files.key, "holds no private key in PEM form without a passphrase");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return Fault("--tls-key", files.key, "is not the key of --tls-certificate");
  }
  WarnOfTime(*certificate);
  if (files.client_ca.empty()) return identity;
  ASSIGN_OR_RETURN(identity.client_ca, ReadPem("--tls-client-ca", files.client_ca));
  if (FirstCertificate(identity.client_ca) == nullptr) {
    return Fault("--tls-client-ca", files.client_ca, "holds no certificate in PEM form");
  }
  return identity;
}

TlsReload::TlsReload(TlsFiles files, Clock& clock, WatchedFiles watched, TlsIdentity identity)
    : files_(std::move(files)), clock_(clock), watched_(std::move(watched)), fresh_(std::move(identity)) {}

absl::StatusOr<std::unique_ptr<TlsReload>> TlsReload::Open(const TlsFiles& files, Clock& clock) {
  std::vector<std::string> paths = {files.certificate, files.key};
  if (!files.client_ca.empty()) paths.push_back(files.client_ca);
  WatchedFiles watched(std::move(paths), clock);  // looked at before they are read: a change in between is seen
  ASSIGN_OR_RETURN(TlsIdentity identity, ReadTlsIdentity(files));
  return std::unique_ptr<TlsReload>(new TlsReload(files, clock, std::move(watched), std::move(identity)));
}

std::optional<TlsIdentity> TlsReload::TakeChange() {
  MutexLock lock(mutex_);
  if (fresh_) return std::exchange(fresh_, std::nullopt);
  if (!watched_.Changed()) return std::nullopt;
  absl::StatusOr<TlsIdentity> identity = ReadTlsIdentity(files_);
  if (identity.ok()) {
    Log(LogLevel::kInfo, "TLS certificates were read anew");
    return *std::move(identity);
  }
  watched_.LookAgain();
  if (told_.Pass(clock_.Now())) {
    Log(LogLevel::kWarning, "TLS certificates could not be read anew: those before stay",
        {{"reason", std::string(identity.status().message())}});
  }
  return std::nullopt;
}

}  // namespace headroom
