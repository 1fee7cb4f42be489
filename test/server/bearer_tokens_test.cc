#include "server/bearer_tokens.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "test/fakes/manual_clock.h"
#include "test/server/scratch_folder.h"

namespace headroom {
namespace {

constexpr const char* kFirst = "first-token-0123456789";
constexpr const char* kSecond = "second-token-0123456789";
constexpr Duration kLook = std::chrono::seconds(2);

std::string Bearer(const std::string& token) { return "Bearer " + token; }

TEST_CASE("each token of the file is taken, and nothing else", "[bearer_tokens]") {
  const ScratchFolder folder;
  folder.Write("tokens", std::string("# who may call\n\n  ") + kFirst + "  \r\n" + kSecond);
  ManualClock clock;
  const auto tokens = BearerTokens::Open(folder.PathOf("tokens"), clock);
  REQUIRE(tokens.ok());
  CHECK((*tokens)->Accepts(Bearer(kFirst)));
  CHECK((*tokens)->Accepts("bEARER " + std::string(kSecond)));
  for (const std::string& wrong :
       {std::string(), std::string("Bearer"), std::string("Bearer "), std::string(kFirst), "Basic " + std::string(kFirst),
        Bearer("# who may call"), Bearer(std::string(kFirst) + "x"), Bearer(std::string(kFirst).substr(1)),
        Bearer(" " + std::string(kFirst)), Bearer(std::string(5000, 'x')), Bearer(std::string(kFirst) + '\0')}) {
    CAPTURE(wrong);
    CHECK_FALSE((*tokens)->Accepts(wrong));
  }
}

TEST_CASE("a file of tokens that cannot be used is named, its contents are not", "[bearer_tokens]") {
  const ScratchFolder folder;
  ManualClock clock;
  const auto fault = [&](const std::string& text) {
    folder.Write("tokens", text);
    return std::string(BearerTokens::Open(folder.PathOf("tokens"), clock).status().message());
  };
  const std::string path = folder.PathOf("tokens");
  CHECK(fault("") == path + " holds no token");
  CHECK(fault("# none\n") == path + " holds no token");
  const std::string no_token = " is no token: 16 to 4096 printable characters without blanks";
  CHECK(fault("\nshort-secret") == path + " line 2" + no_token);
  CHECK(fault("a secret with blanks in it") == path + " line 1" + no_token);
  CHECK(fault(std::string(4097, 'x')) == path + " line 1" + no_token);
  std::string many;
  for (int i = 0; i < 65; ++i) many += "token-number-" + std::to_string(1000 + i) + "\n";
  CHECK(fault(many) == path + " holds more than 64 tokens");
  std::filesystem::remove(path);
  CHECK(BearerTokens::Open(path, clock).status().message() == path + " cannot be read: No such file or directory");
}

TEST_CASE("tokens are replaced while the server runs", "[bearer_tokens]") {
  const ScratchFolder folder;
  folder.Write("tokens", kFirst);
  ManualClock clock;
  const auto tokens = BearerTokens::Open(folder.PathOf("tokens"), clock);
  REQUIRE(tokens.ok());
  folder.Write("tokens", std::string(kFirst) + "\n" + kSecond);
  clock.Advance(kLook);
  CHECK((*tokens)->Accepts(Bearer(kSecond)));
  CHECK((*tokens)->Accepts(Bearer(kFirst)));
  folder.Write("tokens", kSecond);
  clock.Advance(kLook);
  CHECK_FALSE((*tokens)->Accepts(Bearer(kFirst)));
  CHECK((*tokens)->Accepts(Bearer(kSecond)));

  // Half a write locks nobody out.
  folder.Write("tokens", "");
  clock.Advance(kLook);
  CHECK((*tokens)->Accepts(Bearer(kSecond)));
  std::filesystem::remove(folder.PathOf("tokens"));
  clock.Advance(kLook);
  CHECK((*tokens)->Accepts(Bearer(kSecond)));
  folder.Write("tokens", kFirst);
  clock.Advance(kLook);
  CHECK((*tokens)->Accepts(Bearer(kFirst)));
  CHECK_FALSE((*tokens)->Accepts(Bearer(kSecond)));
}

}  // namespace
}  // namespace headroom
