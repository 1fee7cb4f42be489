// headroom_dry: runs a program on dry CUDA cards (dry_cuda.h), by putting the dry libraries, which lie beside this
// program, in front of the real ones, and the cards in the environment.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "card.h"
#include "faults.h"

namespace headroom::dry_cuda {
namespace {

constexpr int kUsageError = 2;
constexpr int kCannotRun = 127;  // As shells say it.

constexpr std::array<std::string_view, 3> kVerbs = {"serve", "plan", "health"};

struct Arguments {
  std::string cards;
  std::string held_by_others;
  std::string faults_file;
  std::vector<std::string> command;  // What follows "--".
};

[[noreturn]] void Quit(int status, const std::string& why) {
  std::fprintf(stderr, "headroom_dry: %s\n", why.c_str());
  std::exit(status);
}

Arguments ParseArguments(int argc, char** argv) {
  // The options of the program that follows are none of CLI11's business.
  char** const separator = std::find(argv + 1, argv + argc, std::string_view("--"));
  Arguments arguments;
  for (char** word = separator + 1; word < argv + argc; ++word) arguments.command.emplace_back(*word);

  CLI::App app(
      "Run a program on CUDA cards that are not there: libtorch's real allocator on stand-in cards, for the memory "
      "that a model would take. Outputs and speed mean nothing.",
      "headroom_dry");
  app.add_option("--card", arguments.cards,
                 "Memory and compute capability of each card, such as 16GiB:7.5 or 16GiB:8.0,640MiB; units B, KiB, MiB, "
                 "GiB, TiB; the capability defaults to 8.0")
      ->type_name("SIZE[:CAPABILITY],...")
      ->required();
  app.add_option("--held-by-others", arguments.held_by_others,
                 "What other processes hold of each card, in the cards' order, such as 2GiB,0B; defaults to 0")
      ->type_name("SIZE,...");
  app.add_option("--faults-file", arguments.faults_file,
                 "Faults for the cards to make, as words NAME=VALUE (dry_cuda.h lists them), such as lost_after_launches=10; read "
                 "again whenever the file changes, and need not exist yet")
      ->type_name("PATH");
  app.footer(
      "headroom_dry --card SIZE[:CAPABILITY],... -- PROGRAM [ARGUMENT...]\n"
      "headroom_dry --card SIZE[:CAPABILITY],... -- serve|plan|health [ARGUMENT...]\n"
      "The verbs of headroom run the program headroom that lies beside this one.\n"
      "CUDA_VISIBLE_DEVICES is taken out of the environment: the cards named are the cards seen.");
  try {
    app.parse(static_cast<int>(separator - argv), argv);
  } catch (const CLI::CallForHelp& help) {
    std::exit(app.exit(help));
  } catch (const CLI::ParseError& error) {
    Quit(kUsageError, error.what());
  }

  std::string problem;
  std::optional<std::vector<Card>> cards = ParseCards(arguments.cards, problem);
  if (!cards.has_value()) Quit(kUsageError, "--card: " + problem);
  if (!ParseHeldByOthers(arguments.held_by_others, *cards, problem)) Quit(kUsageError, "--held-by-others: " + problem);
  if (!arguments.faults_file.empty()) {
    arguments.faults_file = std::filesystem::absolute(arguments.faults_file).string();
    std::ifstream file(arguments.faults_file);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!ParseFaults(text, *cards, problem).has_value()) Quit(kUsageError, "--faults-file: " + problem);
  }
  if (arguments.command.empty()) Quit(kUsageError, "the program to run is missing, give it after --");
  return arguments;
}

// Adds to a list of the loader that is kept in an environment variable.
void Extend(const char* variable, const std::string& first, const std::string& last) {
  const char* present = std::getenv(variable);
  std::string value = first;
  // An empty entry would mean the current folder.
  if (present != nullptr && *present != '\0') value += (value.empty() ? "" : ":") + std::string(present);
  if (!last.empty()) value += (value.empty() ? "" : ":") + last;
  setenv(variable, value.c_str(), 1);
}

void PrepareEnvironment(const Arguments& arguments, const std::filesystem::path& here) {
  const std::filesystem::path runtime = here / "libheadroom_dry_cuda.so";
  const std::filesystem::path drivers = here / "dry";
  for (const auto& needed : {runtime, drivers / "libcuda.so.1", drivers / "libnvidia-ml.so.1"}) {
    if (!std::filesystem::exists(needed)) Quit(kCannotRun, "missing beside this program: " + needed.string());
  }
  if (here.string().find_first_of(" :;") != std::string::npos) {
    Quit(kCannotRun, "the loader cannot preload from a folder with a space, colon or semicolon: " + here.string());
  }
  // Behind what is preloaded already: a sanitizer's runtime insists on being the first.
  Extend("LD_PRELOAD", "", runtime.string());
  // Before the rest, since there a real driver may lie.
  Extend("LD_LIBRARY_PATH", drivers.string(), "");
  setenv(kCardsVariable, arguments.cards.c_str(), 1);
  setenv(kHeldByOthersVariable, arguments.held_by_others.c_str(), 1);
  setenv(kFaultsFileVariable, arguments.faults_file.c_str(), 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  // From capability 9.0 on, libtorch prefers cuDNN's attention for half precision, and cuDNN does not run dry.
  setenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1", 0);
}

// Replaces this process by the command; returns only to say that it could not.
std::string Run(std::vector<std::string> command, const std::filesystem::path& here) {
  if (std::find(kVerbs.begin(), kVerbs.end(), command.front()) != kVerbs.end()) {
    command.insert(command.begin(), (here / "headroom").string());
  }
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  execvp(words.front(), words.data());
  return "cannot run '" + command.front() + "': " + std::strerror(errno);
}

int Main(int argc, char** argv) {
  const Arguments arguments = ParseArguments(argc, argv);
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  PrepareEnvironment(arguments, here);
  Quit(kCannotRun, Run(arguments.command, here));
}

}  // namespace
}  // namespace headroom::dry_cuda

int main(int argc, char** argv) { return headroom::dry_cuda::Main(argc, argv); }
