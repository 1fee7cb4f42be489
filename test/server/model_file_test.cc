#include "server/model_file.h"

#include <fcntl.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "test/server/scratch_folder.h"

namespace headroom {
namespace {

constexpr const char* kSha256OfAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

std::shared_ptr<const ModelFile> Open(const ScratchFolder& folder) {
  return ModelFile::Hash(Descriptor(open(folder.PathOf("model.pt").c_str(), O_RDONLY | O_CLOEXEC))).value();
}

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_CASE("a file is what was hashed, whatever lies at its name", "[model_file]") {
  const ScratchFolder folder;
  folder.Write("model.pt", "abc");
  const auto file = Open(folder);
  CHECK(file->sha256() == kSha256OfAbc);
  folder.Write("other", "something else");
  std::filesystem::rename(folder.path() / "other", folder.path() / "model.pt");
  CHECK(ReadAll(file->path()) == "abc");
  CHECK(file->CheckUnchanged().ok());
  std::filesystem::remove(folder.path() / "model.pt");
  CHECK(ReadAll(file->path()) == "abc");
}

TEST_CASE("a file that was written to since it was hashed is told", "[model_file]") {
  const ScratchFolder folder;
  folder.Write("model.pt", "abc");
  const auto file = Open(folder);
  CHECK(file->CheckUnchanged().ok());
  // A later time, however coarse the file system's are.
  std::filesystem::last_write_time(folder.path() / "model.pt",
                                   std::filesystem::last_write_time(folder.path() / "model.pt") + std::chrono::seconds(2));
  CHECK(file->CheckUnchanged().code() == absl::StatusCode::kFailedPrecondition);
  const auto again = Open(folder);
  std::ofstream(folder.path() / "model.pt", std::ios::app) << "d";
  CHECK(again->CheckUnchanged().code() == absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace headroom
