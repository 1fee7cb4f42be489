#include "server/tls_files.h"

#include <catch2/catch.hpp>
#include <string>

#include "test/fakes/manual_clock.h"
#include "test/server/scratch_folder.h"
#include "test/server/test_certificates.h"

namespace headroom {
namespace {

constexpr Duration kLook = std::chrono::seconds(2);

TlsFiles FilesIn(const ScratchFolder& folder) { return {folder.PathOf("crt"), folder.PathOf("key"), ""}; }

TEST_CASE("a certificate and its key are read", "[tls]") {
  const ScratchFolder folder;
  folder.Write("crt", std::string(kCertificate) + kOtherCertificate);  // a chain: the first is the server's
  folder.Write("key", kKey);
  folder.Write("ca", kOtherCertificate);
  TlsFiles files = FilesIn(folder);
  files.client_ca = folder.PathOf("ca");
  const auto identity = ReadTlsIdentity(files);
  REQUIRE(identity.ok());
  CHECK(identity->key == kKey);
  CHECK(identity->client_ca == kOtherCertificate);
}

TEST_CASE("a fault of TLS' files names the flag, the file and what is wrong", "[tls]") {
  const ScratchFolder folder;
  folder.Write("crt", kCertificate);
  folder.Write("key", kKey);
  folder.Write("other", kOtherKey);
  folder.Write("nonsense", "nonsense");
  folder.Write("half", std::string(kKey).substr(0, 100));
  const std::string crt = folder.PathOf("crt");
  const std::string key = folder.PathOf("key");
  const auto path = [&](const char* name) { return folder.PathOf(name); };
  const std::vector<std::pair<TlsFiles, std::string>> cases = {
      {{path("none"), key, ""}, "--tls-certificate " + path("none") + " cannot be read: No such file or directory"},
      {{path("nonsense"), key, ""}, "--tls-certificate " + path("nonsense") + " holds no certificate in PEM form"},
      {{key, key, ""}, "--tls-certificate " + key + " holds no certificate in PEM form"},
      {{crt, path("half"), ""}, "--tls-key " + path("half") + " holds no private key in PEM form without a passphrase"},
      {{crt, crt, ""}, "--tls-key " + crt + " holds no private key in PEM form without a passphrase"},
      {{crt, path("other"), ""}, "--tls-key " + path("other") + " is not the key of --tls-certificate"},
      {{crt, key, key}, "--tls-client-ca " + key + " holds no certificate in PEM form"},
  };
  for (const auto& [files, fault] : cases) {
    const absl::Status status = ReadTlsIdentity(files).status();
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(std::string(status.message()) == fault);
  }
}

TEST_CASE("another pair is handed out once it is whole", "[tls]") {
  const ScratchFolder folder;
  folder.Write("crt", kCertificate);
  folder.Write("key", kKey);
  ManualClock clock;
  auto reload = TlsReload::Open(FilesIn(folder), clock);
  REQUIRE(reload.ok());
  const auto first = (*reload)->TakeChange();
  REQUIRE(first);
  CHECK(first->certificate == kCertificate);
  CHECK_FALSE((*reload)->TakeChange());

  folder.Write("crt", kOtherCertificate);
  clock.Advance(kLook);
  CHECK_FALSE((*reload)->TakeChange());  // the key is still that of the first
  folder.Write("key", std::string(kOtherKey).substr(0, 60));
  clock.Advance(kLook);
  CHECK_FALSE((*reload)->TakeChange());
  folder.Write("key", kOtherKey);
  CHECK_FALSE((*reload)->TakeChange());  // looked at a moment ago
  clock.Advance(kLook);
  const auto second = (*reload)->TakeChange();
  REQUIRE(second);
  CHECK(second->certificate == kOtherCertificate);
  CHECK(second->key == kOtherKey);
  clock.Advance(kLook);
  CHECK_FALSE((*reload)->TakeChange());
}

}  // namespace
}  // namespace headroom
