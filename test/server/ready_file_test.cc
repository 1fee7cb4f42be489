#include "server/ready_file.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "test/server/scratch_folder.h"

namespace headroom {
namespace {

const Address kGrpc{"127.0.0.1", 8001};
const Address kHttp{"::1", 65535};

TEST_CASE("the ready file tells where the server listens", "[ready_file]") {
  const ScratchFolder folder;
  REQUIRE(WriteReadyFile(folder.PathOf("ready"), kGrpc, kHttp).ok());
  const auto told = nlohmann::json::parse(folder.Read("ready"));
  CHECK(told == nlohmann::json{{"grpc", "127.0.0.1:8001"}, {"http", "[::1]:65535"}});
}

TEST_CASE("the ready file takes the place of an old one, and leaves nothing beside it", "[ready_file]") {
  const ScratchFolder folder;
  folder.Write("ready", std::string(10'000, 'x'));
  REQUIRE(WriteReadyFile(folder.PathOf("ready"), kGrpc, kHttp).ok());
  CHECK(nlohmann::json::parse(folder.Read("ready")).size() == 2);
  CHECK(folder.size() == 1);
}

TEST_CASE("a ready file that is there already is not written to but replaced", "[ready_file]") {
  // Whoever has the old one open, or a second name for it, keeps the old one: what is at the path is whole at any time.
  const ScratchFolder folder;
  folder.Write("ready", "old");
  std::filesystem::create_hard_link(folder.path() / "ready", folder.path() / "kept");
  REQUIRE(WriteReadyFile(folder.PathOf("ready"), kGrpc, kHttp).ok());
  CHECK(folder.Read("kept") == "old");
}

TEST_CASE("before it serves nothing is there, not even what an earlier run left", "[ready_file]") {
  const ScratchFolder folder;
  CHECK(ClearReadyFile(folder.PathOf("ready")).ok());
  CHECK(folder.size() == 0);
  REQUIRE(WriteReadyFile(folder.PathOf("ready"), kGrpc, kHttp).ok());
  CHECK(ClearReadyFile(folder.PathOf("ready")).ok());
  CHECK(folder.size() == 0);
}

TEST_CASE("a ready file that cannot be written is named, with its option", "[ready_file]") {
  const ScratchFolder folder;
  folder.Write("file", "");
  folder.Write("folder/within", "");
  for (const char* const name : {"missing/ready", "file/ready", "folder"}) {
    const std::string path = folder.PathOf(name);
    CAPTURE(path);
    for (const absl::Status& status : {ClearReadyFile(path), WriteReadyFile(path, kGrpc, kHttp)}) {
      CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
      CHECK(std::string(status.message()).rfind("--ready-file " + path + " cannot be written", 0) == 0);
    }
  }
  CHECK(folder.size() == 2);
}

}  // namespace
}  // namespace headroom
