#include "server/model_manifest.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "test/server/scratch_folder.h"

namespace headroom {
namespace {

const std::string kA(64, 'a');
const std::string kB(64, 'b');

TEST_CASE("a manifest is read as sha256sum writes it", "[model_manifest]") {
  const std::string upper(64, 'A');
  const auto manifest = ModelManifest::Parse(kA + "  P/1/model.pt\n" + kB + " *./P/config.pbtxt\n\n" + upper + "  P/1/model.pt\n");
  REQUIRE(manifest.ok());
  CHECK(manifest->Check("P/1/model.pt", kA).ok());
  CHECK(manifest->Check("P/config.pbtxt", kB).ok());
}

TEST_CASE("what is not listed, or listed otherwise, may not be used", "[model_manifest]") {
  const auto manifest = ModelManifest::Parse(kA + "  P/1/model.pt\n").value();
  const absl::Status unknown = manifest.Check("P/2/model.pt", kA);
  CHECK(unknown.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(unknown.message()) == "P/2/model.pt is not listed in the --model-manifest");
  const absl::Status other = manifest.Check("P/1/model.pt", kB);
  CHECK(other.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(other.message()) ==
        "P/1/model.pt is not the file that the --model-manifest lists: its SHA-256 begins with bbbbbbbbbbbb, the listed one with "
        "aaaaaaaaaaaa");
  CHECK_FALSE(ModelManifest::Parse("").value().Check("P/1/model.pt", kA).ok());
}

TEST_CASE("a line that is none is told by its number", "[model_manifest]") {
  const std::string good = kA + "  P/1/model.pt\n";
  for (const std::string& bad :
       std::vector<std::string>{"P/1/model.pt", kA, kA + "  ", kA + " P/1/model.pt", kA + "x  P", kA.substr(1) + "  P/1/model.pt",
                                "# " + kA + "  P", std::string(64, 'g') + "  P", "\\" + kA + "  P\\\\Q"}) {
    const auto manifest = ModelManifest::Parse(good + bad + "\n");
    CAPTURE(bad);
    REQUIRE_FALSE(manifest.ok());
    CHECK(std::string(manifest.status().message()).find("line 2 ") == 0);
  }
  const auto twice = ModelManifest::Parse(good + kB + "  ./P/1/model.pt\n");
  CHECK(std::string(twice.status().message()) == "line 2: \"P/1/model.pt\" is listed already, with another digest");
}

TEST_CASE("a manifest that cannot be read is a fault of the option", "[model_manifest]") {
  const ScratchFolder folder;
  for (const std::string& name : {std::string("missing"), std::string("empty")}) {
    if (name == "empty") folder.Write(name, "");
    const auto manifest = ModelManifest::Read(folder.PathOf(name));
    REQUIRE_FALSE(manifest.ok());
    CHECK(std::string(manifest.status().message()).find("--model-manifest") == 0);
    CHECK(std::string(manifest.status().message()).find(name) != std::string::npos);
  }
  folder.Write("SHA256SUMS", kA + "  P/1/model.pt\n");
  CHECK(ModelManifest::Read(folder.PathOf("SHA256SUMS")).value().Check("P/1/model.pt", kA).ok());
}

}  // namespace
}  // namespace headroom
