// Certificates and keys from files, checked before they are used.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/rate_limit.h"
#include "base/sync.h"
#include "server/options.h"
#include "server/watched_files.h"

namespace headroom {

// PEM texts that fit each other.
struct TlsIdentity {
  std::string certificate;
  std::string key;
  std::string client_ca;  // empty where clients need no certificate
};

// FAILED_PRECONDITION naming the flag, the file and the fault: it cannot be read, is no PEM, needs a passphrase, or the key is not
// the certificate's. A certificate that is not yet or no longer valid is a warning in the log: clocks differ, and clients judge.
absl::StatusOr<TlsIdentity> ReadTlsIdentity(const TlsFiles& files);

// Hands out what the files hold now. Thread-safe.
//
// Files that have become unreadable, or do not fit each other as while a pair is half written, leave the identity that was, and are
// logged.
class TlsReload {
 public:
  // `clock` outlives the object.
  static absl::StatusOr<std::unique_ptr<TlsReload>> Open(const TlsFiles& files, Clock& clock);

  // The identity at the first call and when it is another one than at the last; nullopt otherwise.
  std::optional<TlsIdentity> TakeChange() EXCLUDES(mutex_);

 private:
  TlsReload(TlsFiles files, Clock& clock, WatchedFiles watched, TlsIdentity identity);

  const TlsFiles files_;
  Clock& clock_;
  RateLimit told_{std::chrono::minutes(1)};
  Mutex mutex_;
  WatchedFiles watched_ GUARDED_BY(mutex_);
  std::optional<TlsIdentity> fresh_ GUARDED_BY(mutex_);
};

}  // namespace headroom
