// How a process gets onto dry cards: the loader's variables and the cards are put into its environment, and a program is run in it.
#ifndef HEADROOM_RUNTIME_DRY_CUDA_LAUNCH_H_
#define HEADROOM_RUNTIME_DRY_CUDA_LAUNCH_H_

#include <string>
#include <vector>

namespace headroom::dry_cuda {

// Cards as they are written: dry_cuda.h has the form.
struct CardList {
  std::string cards;
  std::string held_by_others;
};

// What is wrong with the text, naming the part; empty where it can be used.
std::string FaultOfCards(const std::string& cards);
std::string FaultOfHeldByOthers(const CardList& list);

// Whether this process was started on exactly these cards.
enum class Standing {
  kElsewhere,   // it was not
  kOnTheCards,  // it was, and runs dry
  kNotLoaded,   // it was meant to be, but the loader has not loaded the dry runtime: starting it again would not help
};
Standing StandingOn(const CardList& list);

// Puts the dry libraries that lie beside this process' program (or in ../lib/headroom from there) in front of the real ones, and
// the cards, into the environment, for a program that is run next. Returns what stands in the way, empty where nothing does.
std::string PrepareEnvironment(const CardList& list);

// The folder of this process' program.
std::string ProgramFolder();

// Replaces this process by a program, found on the PATH where its name has no slash. Returns only to say why it could not.
std::string Become(const std::string& program, std::vector<std::string> words);

}  // namespace headroom::dry_cuda

#endif  // HEADROOM_RUNTIME_DRY_CUDA_LAUNCH_H_
