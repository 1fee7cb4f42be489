// headroom_dry: runs a program on dry CUDA cards (dry_cuda.h), by putting the dry libraries, which lie beside this
// program, in front of the real ones, and the cards in the environment.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "card.h"
#include "faults.h"
#include "launch.h"

namespace headroom::dry_cuda {
namespace {

constexpr int kUsageError = 2;
constexpr int kCannotRun = 127;  // As shells say it.

constexpr std::array<std::string_view, 3> kVerbs = {"serve", "plan", "health"};

struct Arguments {
  CardList cards;
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
  app.add_option("--card", arguments.cards.cards,
                 "Memory and compute capability of each card, such as 16GiB:7.5 or 16GiB:8.0,640MiB; units B, KiB, MiB, "
                 "GiB, TiB; the capability defaults to 8.0")
      ->type_name("SIZE[:CAPABILITY],...")
      ->required();
  app.add_option("--held-by-others", arguments.cards.held_by_others,
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

  if (const std::string fault = FaultOfCards(arguments.cards.cards); !fault.empty()) Quit(kUsageError, "--card: " + fault);
  if (const std::string fault = FaultOfHeldByOthers(arguments.cards); !fault.empty()) {
    Quit(kUsageError, "--held-by-others: " + fault);
  }
  if (!arguments.faults_file.empty()) {
    arguments.faults_file = std::filesystem::absolute(arguments.faults_file).string();
    std::ifstream file(arguments.faults_file);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    std::string problem;
    const std::optional<std::vector<Card>> cards = ParseCards(arguments.cards.cards, problem);
    if (!ParseFaults(text, *cards, problem).has_value()) Quit(kUsageError, "--faults-file: " + problem);
  }
  if (arguments.command.empty()) Quit(kUsageError, "the program to run is missing, give it after --");
  return arguments;
}

// Replaces this process by the command; returns only to say that it could not.
std::string Run(std::vector<std::string> command) {
  if (std::find(kVerbs.begin(), kVerbs.end(), command.front()) != kVerbs.end()) {
    command.insert(command.begin(), ProgramFolder() + "/headroom");
  }
  return Become(command.front(), command);
}

int Main(int argc, char** argv) {
  const Arguments arguments = ParseArguments(argc, argv);
  if (const std::string fault = PrepareEnvironment(arguments.cards); !fault.empty()) Quit(kCannotRun, fault);
  setenv(kFaultsFileVariable, arguments.faults_file.c_str(), 1);
  Quit(kCannotRun, Run(arguments.command));
}

}  // namespace
}  // namespace headroom::dry_cuda

int main(int argc, char** argv) { return headroom::dry_cuda::Main(argc, argv); }
