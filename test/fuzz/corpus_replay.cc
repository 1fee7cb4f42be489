// Takes every file of the corpus through its target, once: what fuzzing found stays found, in every build.
//
//   headroom_corpus_replay CORPUS      a folder with one for each target
//
// Prints each file's name before it runs. Exit code: 0 all promises are kept, 2 where a folder is missing or empty; a broken
// promise or a sanitizer ends it otherwise.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "test/fuzz/fuzz_targets.h"

namespace headroom {
namespace {

struct Target {
  const char* folder;
  void (*run)(std::string_view);
};
constexpr Target kTargets[] = {
    {"request_decode", FuzzRequestDecode}, {"model_config", FuzzModelConfig}, {"http", FuzzHttp}, {"traffic", FuzzTraffic}};

std::vector<std::filesystem::path> FilesOf(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

int Main(const std::vector<std::string>& words) {
  if (words.size() != 1) {
    std::fprintf(stderr, "headroom_corpus_replay: CORPUS\n");
    return 2;
  }
  for (const Target& target : kTargets) {
    const auto files = FilesOf(std::filesystem::path(words[0]) / target.folder);
    if (files.empty()) {
      std::fprintf(stderr, "headroom_corpus_replay: there is nothing for %s in %s\n", target.folder, words[0].c_str());
      return 2;
    }
    for (const auto& path : files) {
      std::printf("%s/%s\n", target.folder, path.filename().c_str());
      std::fflush(stdout);
      std::ifstream file(path, std::ios::binary);
      target.run(std::string(std::istreambuf_iterator<char>(file), {}));
    }
    std::printf("%s: %zu files\n", target.folder, files.size());
  }
  return 0;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) { return headroom::Main({argv + 1, argv + argc}); }
