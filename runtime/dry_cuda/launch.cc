#include "launch.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "card.h"
#include "faults.h"

namespace headroom::dry_cuda {
namespace {

// Adds to a list of the loader that is kept in an environment variable.
void Extend(const char* variable, const std::string& first, const std::string& last) {
  const char* present = std::getenv(variable);
  std::string value = first;
  // An empty entry would mean the current folder.
  if (present != nullptr && *present != '\0') value += (value.empty() ? "" : ":") + std::string(present);
  if (!last.empty()) value += (value.empty() ? "" : ":") + last;
  setenv(variable, value.c_str(), 1);
}

bool Holds(const char* variable, const std::string& text) {
  const char* present = std::getenv(variable);
  return present != nullptr && text == present;
}

struct Libraries {
  std::filesystem::path runtime;
  std::filesystem::path drivers;

  // The first of them that is not there.
  std::optional<std::filesystem::path> Missing() const {
    for (const auto& needed : {runtime, drivers / "libcuda.so.1", drivers / "libnvidia-ml.so.1"}) {
      if (!std::filesystem::exists(needed)) return needed;
    }
    return std::nullopt;
  }
};

Libraries In(const std::filesystem::path& folder) { return {folder / "libheadroom_dry_cuda.so", folder / "dry"}; }

}  // namespace

std::string FaultOfCards(const std::string& cards) {
  std::string problem;
  return ParseCards(cards, problem).has_value() ? "" : problem;
}

std::string FaultOfHeldByOthers(const CardList& list) {
  std::string problem;
  std::optional<std::vector<Card>> cards = ParseCards(list.cards, problem);
  return cards.has_value() && ParseHeldByOthers(list.held_by_others, *cards, problem) ? "" : problem;
}

Standing StandingOn(const CardList& list) {
  if (!Holds(kCardsVariable, list.cards) || !Holds(kHeldByOthersVariable, list.held_by_others)) return Standing::kElsewhere;
  return dlsym(RTLD_DEFAULT, "headroom_dry_cuda_present") != nullptr ? Standing::kOnTheCards : Standing::kNotLoaded;
}

std::string ProgramFolder() { return std::filesystem::read_symlink("/proc/self/exe").parent_path().string(); }

std::string PrepareEnvironment(const CardList& list) {
  const std::filesystem::path here = ProgramFolder();
  Libraries libraries = In(here);
  if (const auto missing = libraries.Missing(); missing.has_value()) {
    libraries = In(here.parent_path() / "lib" / "headroom");
    if (libraries.Missing().has_value()) return "missing beside this program: " + missing->string();
  }
  if (libraries.runtime.string().find_first_of(" :;") != std::string::npos) {
    return "the loader cannot preload from a folder with a space, colon or semicolon: " + libraries.runtime.string();
  }
  // Behind what is preloaded already: a sanitizer's runtime insists on being the first.
  Extend("LD_PRELOAD", "", libraries.runtime.string());
  // Before the rest, since there a real driver may lie.
  Extend("LD_LIBRARY_PATH", libraries.drivers.string(), "");
  setenv(kCardsVariable, list.cards.c_str(), 1);
  setenv(kHeldByOthersVariable, list.held_by_others.c_str(), 1);
  unsetenv(kFaultsFileVariable);  // whoever wants faults says so afterwards
  unsetenv("CUDA_VISIBLE_DEVICES");
  // From capability 9.0 on, libtorch prefers cuDNN's attention for half precision, and cuDNN does not run dry.
  setenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1", 0);
  return "";
}

std::string Become(const std::string& program, std::vector<std::string> words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(program.c_str(), pointers.data());
  return "cannot run '" + program + "': " + std::strerror(errno);
}

}  // namespace headroom::dry_cuda
