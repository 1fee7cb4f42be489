#include "server/model_repository.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace headroom {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

constexpr const char* kConfig = R"(
  max_batch_size: 4
  input { name: "x" data_type: TYPE_FP32 dims: 16 }
  output { name: "y" data_type: TYPE_FP32 dims: 16 }
)";

// A folder of its own, gone with its owner.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "headroom-repository-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  std::string path() const { return path_.string(); }
  fs::path operator/(const std::string& name) const { return path_ / name; }

  Folder& Write(const std::string& name, const std::string& content) {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << content;
    return *this;
  }
  Folder& AddModel(const std::string& name, const std::string& config = kConfig, const std::string& version = "1") {
    return Write(name + "/config.pbtxt", config).Write(absl::StrCat(name, "/", version, "/model.pt"), "abc");
  }

 private:
  fs::path path_;
};

std::string Little(std::uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(number >> (8 * i)));
  return text;
}

std::uint32_t Crc32(const std::string& content) {
  std::uint32_t crc = ~0U;
  for (const char c : content) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

// A zip archive, uncompressed, of an entry for each extra file: as much of a TorchScript module as the repository reads.
std::string ModuleWith(const std::vector<std::pair<std::string, std::string>>& extra_files) {
  std::vector<std::pair<std::string, std::string>> entries = {{"m/version", "3\n"}};
  for (const auto& [name, content] : extra_files) entries.emplace_back("m/extra/" + name, content);
  std::string archive;
  std::string directory;
  for (const auto& [name, content] : entries) {
    const std::string about = Little(0, 2) + Little(0, 2) + Little(0, 4) + Little(Crc32(content), 4) + Little(content.size(), 4) +
                              Little(content.size(), 4) + Little(name.size(), 2) + Little(0, 2);
    directory += "PK\1\2" + Little(20, 2) + Little(20, 2) + about + Little(0, 2) + Little(0, 2) + Little(0, 2) + Little(0, 4) +
                 Little(archive.size(), 4) + name;
    archive += "PK\3\4" + Little(20, 2) + about + name + content;
  }
  return archive + directory + "PK\5\6" + Little(0, 4) + Little(entries.size(), 2) + Little(entries.size(), 2) +
         Little(directory.size(), 4) + Little(archive.size(), 4) + Little(0, 2);
}

RepositoryContents Contents(const Folder& folder) {
  absl::StatusOr<RepositoryContents> contents = ReadRepository(folder.path());
  INFO(contents.status().ToString());
  REQUIRE(contents.ok());
  return *std::move(contents);
}

Lines FaultsOf(const Folder& folder) {
  const absl::StatusOr<RepositoryContents> contents = ReadRepository(folder.path());
  if (contents.ok()) return {};
  CHECK(contents.status().code() == absl::StatusCode::kInvalidArgument);
  return absl::StrSplit(std::string(contents.status().message()), '\n');
}

TEST_CASE("a repository is read, its models by name", "[model_repository]") {
  Folder folder;
  folder.AddModel("b").AddModel("A-1_x", absl::StrCat(kConfig, "optimization { }"));
  const RepositoryContents contents = Contents(folder);
  REQUIRE(contents.models.size() == 2);
  const RepositoryModel& model = contents.models[0];
  CHECK(model.name == "A-1_x");
  CHECK(model.version == 1);
  CHECK(model.model_file == folder.path() + "/A-1_x/1/model.pt");
  CHECK(model.spec.name == "A-1_x");
  CHECK(model.spec.max_batch_rows == 4);
  CHECK(model.config.platform() == "pytorch_libtorch");
  // FIPS 180-2, appendix B.1.
  CHECK(model.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(
      model.warnings ==
      Lines{
          "config.pbtxt: optimization: is ignored: hints on speed, which change no answer; staging memory is pinned in any case"});
  CHECK(contents.models[1].name == "b");
  CHECK(contents.warnings.empty());
}

TEST_CASE("the digest covers a file of several blocks", "[model_repository]") {
  Folder folder;
  folder.AddModel("P").Write("P/1/model.pt", std::string(3'000'000, 'a'));
  const std::string first = Contents(folder).models[0].sha256;
  std::string changed(3'000'000, 'a');
  changed.back() = 'b';
  folder.Write("P/1/model.pt", changed);
  CHECK(Contents(folder).models[0].sha256 != first);
  CHECK(first.size() == 64);
}

TEST_CASE("the newest version that the policy allows is served", "[model_repository]") {
  struct Case {
    const char* policy;
    std::int64_t version;
  };
  const std::vector<Case> cases = {
      {"", 10},
      {"version_policy { latest { num_versions: 1 } }", 10},
      {"version_policy { latest { num_versions: 3 } }", 10},
      {"version_policy { all { } }", 10},
      {"version_policy { specific { versions: 2 } }", 2},
      {"version_policy { specific { versions: [ 2, 9, 1 ] } }", 9},
      {"version_policy { specific { versions: [ 7, 2 ] } }", 2},
  };
  for (const Case& one : cases) {
    INFO(one.policy);
    Folder folder;
    for (const char* version : {"1", "2", "9", "10"}) folder.AddModel("P", absl::StrCat(kConfig, one.policy), version);
    CHECK(Contents(folder).models[0].version == one.version);
  }
  Folder folder;
  folder.AddModel("P", absl::StrCat(kConfig, "version_policy { specific { versions: 3 } }"));
  CHECK(FaultsOf(folder) == Lines{"model 'P': config.pbtxt: version_policy.specific.versions: none of them is there"});
}

TEST_CASE("without a file beside it, the configuration that the newest version carries is used", "[model_repository]") {
  const auto rows = [](int most) {
    return absl::StrCat("max_batch_size: ", most, R"( input { name: "x" data_type: TYPE_FP32 dims: 16 }
                        output { name: "y" data_type: TYPE_FP32 dims: 16 } optimization { } )");
  };
  Folder folder;
  folder.Write("P/1/model.pt", ModuleWith({{"config.pbtxt", rows(1)}}))
      .Write("P/2/model.pt", ModuleWith({{"notes.txt", "none"}, {"config.pbtxt", rows(2)}}));
  RepositoryModel model = Contents(folder).models[0];
  CHECK(model.version == 2);
  CHECK(model.spec.max_batch_rows == 2);
  REQUIRE(model.warnings.size() == 1);
  CHECK(model.warnings[0].starts_with("version 2: model.pt: config.pbtxt: optimization: is ignored"));

  // Its policy counts too, and may choose an older version.
  folder.Write("P/10/model.pt", ModuleWith({{"config.pbtxt", rows(10) + "version_policy { specific { versions: 1 } }"}}));
  model = *ReadRepositoryModel(folder.path(), "P");
  CHECK(model.version == 1);
  CHECK(model.spec.max_batch_rows == 10);

  folder.Write("P/config.pbtxt", rows(64));
  model = *ReadRepositoryModel(folder.path(), "P");
  CHECK(model.version == 10);
  CHECK(model.spec.max_batch_rows == 64);
}

TEST_CASE("what is wrong with the configuration inside the module is told with its place", "[model_repository]") {
  Folder elsewhere;
  elsewhere.Write("model.pt", ModuleWith({{"config.pbtxt", kConfig}}));
  Folder folder;
  folder.Write("a/1/model.pt", ModuleWith({}))
      .Write("b/1/model.pt", ModuleWith({{"config.pbtxt", "max_batch_size: -1"}}))
      .Write("c/3/model.pt", ModuleWith({{"config.pbtxt", std::string((1 << 20) + 1, '#')}}))
      .Write("d/1/model.pt", ModuleWith({{"config.pbtxt", kConfig}}));
  fs::create_directories(folder / "d/2");
  fs::create_directories(folder / "e/1");
  fs::create_symlink(elsewhere / "model.pt", folder / "e/1/model.pt");
  fs::create_directories(folder / "f");
  const Lines faults = FaultsOf(folder);
  REQUIRE(faults.size() >= 6);
  CHECK(faults[0] == "model 'a': config.pbtxt is missing, and there is none inside 1/model.pt");
  CHECK(faults[1].starts_with("model 'b': version 1: model.pt: config.pbtxt: "));
  const Lines last(faults.end() - 4, faults.end());
  CHECK(last == Lines{"model 'c': config.pbtxt is missing; version 3: model.pt: config.pbtxt in the model file is longer than "
                      "1048576 bytes",
                      "model 'd': config.pbtxt is missing; version 2: model.pt is missing",
                      "model 'e': config.pbtxt is missing; version 1: model.pt is a symbolic link, which is not followed",
                      "model 'f': config.pbtxt is missing"});
}

TEST_CASE("what is no version is left out with a warning", "[model_repository]") {
  Folder folder;
  folder.AddModel("P", kConfig, "3");
  for (const char* name : {"0", "01", "-4", "4x", "99999999999999999999"}) folder.AddModel("P", kConfig, name);
  folder.Write("P/labels.txt", "").Write("P/7", "a file, no folder");
  fs::create_directory_symlink(folder / "P/3", folder / "P/8");
  const RepositoryModel model = Contents(folder).models[0];
  CHECK(model.version == 3);
  CHECK(model.warnings == Lines{"folder \"-4\" is left out: versions are numbers from 1, without leading zeros",
                                "folder \"0\" is left out: versions are numbers from 1, without leading zeros",
                                "folder \"01\" is left out: versions are numbers from 1, without leading zeros",
                                "folder \"4x\" is left out: versions are numbers from 1, without leading zeros",
                                "version 8 is a symbolic link, which is not followed",
                                "folder \"99999999999999999999\" is left out: versions are numbers from 1, without leading zeros"});
}

TEST_CASE("what is no model is left out with a warning", "[model_repository]") {
  Folder elsewhere;
  elsewhere.AddModel("linked");
  Folder folder;
  folder.AddModel("P").AddModel(".hidden").AddModel("two words").AddModel(std::string(129, 'n')).Write("README", "");
  fs::create_directory_symlink(elsewhere / "linked", folder / "linked");
  const RepositoryContents contents = Contents(folder);
  REQUIRE(contents.models.size() == 1);
  REQUIRE(contents.warnings.size() == 5);
  CHECK(contents.warnings[0] ==
        "\".hidden\" in the model repository is left out: a model's name is of 1 to 128 letters, digits, '_' or '-'");
  CHECK(contents.warnings[1] == "\"README\" in the model repository is left out: it is not a folder");
  CHECK(contents.warnings[2] == "\"linked\" in the model repository is left out: it is a symbolic link, which is not followed");
  CHECK(ReadRepositoryModel(folder.path(), "linked").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("the repository itself may be a symbolic link", "[model_repository]") {
  Folder folder;
  folder.AddModel("P");
  Folder other;
  fs::create_directory_symlink(folder.path(), other / "link");
  const absl::StatusOr<RepositoryContents> contents = ReadRepository((other / "link").string() + "/");
  REQUIRE(contents.ok());
  CHECK(contents->models[0].model_file == (other / "link").string() + "/P/1/model.pt");
}

TEST_CASE("the faults of all models are told together", "[model_repository]") {
  Folder folder;
  folder.AddModel("good")
      .AddModel("bad", absl::StrCat(kConfig, "sequence { buckets: [ 64, 32 ] }"))
      .AddModel("broken", "this is { not a config")
      .Write("no_config/1/model.pt", "abc")
      .Write("no_file/config.pbtxt", kConfig)
      .Write("no_version/config.pbtxt", kConfig)
      .AddModel("newer_half_done")
      .AddModel("huge", std::string((1 << 20) + 1, '#'));
  fs::create_directories(folder / "no_file/1");
  fs::create_directories(folder / "newer_half_done/2");
  const Lines faults = FaultsOf(folder);
  REQUIRE(faults.size() == 9);
  constexpr const char* kNoConfig =
      "model 'no_config': config.pbtxt is missing; version 1: model.pt: the model file is not a TorchScript module (it is no zip "
      "archive)";
  CHECK(faults == Lines{"model 'bad': config.pbtxt: sequence: is set, but no input has a -1 dimension",
                        "model 'bad': config.pbtxt: sequence.buckets[1]: 32 does not ascend from 64",
                        "model 'broken': config.pbtxt: line 1: Message type \"inference.ModelConfig\" has no field named \"this\".",
                        "model 'broken': config.pbtxt: line 1, column 6: Expected \"{\", found \"is\".",
                        "model 'huge': config.pbtxt is longer than 1048576 bytes",
                        "model 'newer_half_done': version 2: model.pt is missing", kNoConfig,
                        "model 'no_file': version 1: model.pt is missing",
                        "model 'no_version': holds no version: a folder named 1, or a higher number, with model.pt in it"});
}

TEST_CASE("links and what are no files are not read", "[model_repository]") {
  Folder elsewhere;
  elsewhere.Write("model.pt", "abc").Write("config.pbtxt", kConfig);
  Folder folder;
  folder.AddModel("a").AddModel("b").AddModel("c").AddModel("d");
  fs::remove(folder / "a/config.pbtxt");
  fs::create_symlink(elsewhere / "config.pbtxt", folder / "a/config.pbtxt");
  fs::remove(folder / "b/1/model.pt");
  fs::create_symlink(elsewhere / "model.pt", folder / "b/1/model.pt");
  fs::remove(folder / "c/1/model.pt");
  fs::create_directories(folder / "c/1/model.pt");
  fs::remove(folder / "d/config.pbtxt");
  REQUIRE(mkfifo((folder / "d/config.pbtxt").c_str(), 0600) == 0);
  CHECK(FaultsOf(folder) == Lines{"model 'a': config.pbtxt is a symbolic link, which is not followed",
                                  "model 'b': version 1: model.pt is a symbolic link, which is not followed",
                                  "model 'c': version 1: model.pt is not a file", "model 'd': config.pbtxt is not a file"});
}

TEST_CASE("a repository that cannot be used is named with its option", "[model_repository]") {
  Folder folder;
  const absl::Status missing = ReadRepository(folder.path() + "/nowhere").status();
  CHECK(missing.code() == absl::StatusCode::kNotFound);
  CHECK(missing.message() == absl::StrCat("--model-repository \"", folder.path(), "/nowhere\" is missing"));

  const absl::Status empty = ReadRepository(folder.path()).status();
  CHECK(empty.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(empty.message() == absl::StrCat("--model-repository \"", folder.path(),
                                        "\" holds no model: a model is a folder with config.pbtxt and 1/model.pt"));

  folder.Write("file", "");
  const absl::Status file = ReadRepository(folder.path() + "/file").status();
  CHECK(file.message() == absl::StrCat("--model-repository \"", folder.path(), "/file\" is not a folder"));
  CHECK(ReadRepository("").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("one model is read anew by its name", "[model_repository]") {
  Folder folder;
  folder.AddModel("P").AddModel("bad", "max_batch_size: -1");
  CHECK(ReadRepositoryModel(folder.path(), "P")->version == 1);
  folder.AddModel("P", kConfig, "2");
  CHECK(ReadRepositoryModel(folder.path(), "P")->version == 2);
  CHECK(ReadRepositoryModel(folder.path(), "bad").status().code() == absl::StatusCode::kInvalidArgument);
  const std::vector<std::string> names = {"nobody", "../P", "..", ".", "", "P/1", std::string("P\0x", 3)};
  for (const std::string& name : names) {
    INFO(name);
    CHECK(ReadRepositoryModel(folder.path(), name).status().code() == absl::StatusCode::kNotFound);
  }
}

}  // namespace
}  // namespace headroom
