#include "runtime/torch/extra_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <random>

#include "test/runtime/torch/scripted_model.h"

namespace headroom {
namespace {

using Extra = torch::jit::ExtraFilesMap;

std::filesystem::path SaveWith(const TemporaryFolder& folder, const Extra& extra) {
  torch::jit::Module module("M");
  module.register_parameter("w", at::ones({100'000}), /*is_buffer=*/false);
  module.define("def forward(self, x):\n    return x * self.w.sum()\n");
  auto file = folder.path() / "model.pt";
  module.save(file.string(), extra);
  return file;
}

absl::StatusOr<std::optional<std::string>> ReadFrom(const std::filesystem::path& file, const std::string& name) {
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(descriptor >= 0);
  auto content = ReadExtraFile(descriptor, name);
  close(descriptor);
  return content;
}

std::string ContentOf(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void Write(const std::filesystem::path& file, const std::string& content) { std::ofstream(file, std::ios::binary) << content; }

TEST_CASE("an extra file is read as it was written, and one that is not there is no error", "[extra_file]") {
  CpuWithLimit();
  const TemporaryFolder folder;
  const std::string text = std::string("name: \"m\"\0\n", 11) + std::string(10'000, '#');
  const auto file = SaveWith(folder, {{"config.pbtxt", text}, {"empty", ""}});
  CHECK(ReadFrom(file, "config.pbtxt").value() == text);
  CHECK(ReadFrom(file, "empty").value() == "");
  CHECK(ReadFrom(file, "other").value() == std::nullopt);
  CHECK(ReadFrom(file, "").value() == std::nullopt);
  CHECK(ReadFrom(file, "../data.pkl").value() == std::nullopt);
}

TEST_CASE("an extra file of more than the bound is refused, one of just as much is read", "[extra_file]") {
  CpuWithLimit();
  const TemporaryFolder folder;
  const auto longest = static_cast<std::size_t>(kLongestExtraFile.count);
  const auto file = SaveWith(folder, {{"fits", std::string(longest, 'x')}, {"over", std::string(longest + 1, 'x')}});
  CHECK(ReadFrom(file, "fits").value()->size() == longest);
  const absl::Status over = ReadFrom(file, "over").status();
  CHECK(absl::IsInvalidArgument(over));
  CHECK(over.message() == "over in the model file is longer than 1048576 bytes");
}

TEST_CASE("a damaged archive is an error in one line, whatever the damage", "[extra_file]") {
  CpuWithLimit();
  const TemporaryFolder folder;
  const std::string whole = ContentOf(SaveWith(folder, {{"config.pbtxt", std::string(300, '#')}}));
  const auto bad = folder.path() / "bad.pt";
  const auto check = [&](const std::string& content) {
    Write(bad, content);
    const auto read = ReadFrom(bad, "config.pbtxt");
    if (read.ok()) return;  // what was damaged is read by nobody here
    CHECK(absl::IsInvalidArgument(read.status()));
    const std::string text(read.status().message());
    CHECK(text.find('\n') == std::string::npos);
    CHECK(text.find(folder.path().string()) == std::string::npos);
  };
  for (const std::string& content :
       {std::string(), std::string("PK\x03\x04"), std::string("#!/bin/sh\n"), std::string(5000, '\0')}) {
    Write(bad, content);
    CHECK(absl::IsInvalidArgument(ReadFrom(bad, "config.pbtxt").status()));
  }
  for (std::size_t length = 0; length < whole.size(); length += whole.size() / 97 + 1) check(whole.substr(0, length));
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::string content = whole;
    // The directory at the end is what a reader believes.
    const std::size_t from = round % 2 == 0 ? 0 : content.size() - 1000;
    for (int i = 0; i < 4; ++i) content[from + random() % (content.size() - from)] = static_cast<char>(random());
    check(content);
  }
}

}  // namespace
}  // namespace headroom
