#include "dry_state.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "dry_cuda.h"

namespace headroom::dry_cuda {
namespace {

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

// A library that is preloaded also into shells and compilers must not end the process over its configuration: it
// complains when the first CUDA call is made, and has no card.
std::vector<Card> CardsOfEnvironment() {
  const char* cards_text = std::getenv(kCardsVariable);
  if (cards_text == nullptr) {
    std::fprintf(stderr, "headroom dry CUDA: no cards, as %s is not set; headroom_dry sets it\n", kCardsVariable);
    return {};
  }
  std::string problem;
  std::optional<std::vector<Card>> cards = ParseCards(cards_text, problem);
  if (!cards.has_value()) {
    std::fprintf(stderr, "headroom dry CUDA: no cards, %s: %s\n", kCardsVariable, problem.c_str());
    return {};
  }
  const char* held_text = std::getenv(kHeldByOthersVariable);
  if (held_text != nullptr && !ParseHeldByOthers(held_text, *cards, problem)) {
    std::fprintf(stderr, "headroom dry CUDA: no cards, %s: %s\n", kHeldByOthersVariable, problem.c_str());
    return {};
  }
  return *std::move(cards);
}

}  // namespace

DryState::DryState(std::vector<Card> described) : cards(std::move(described)), memory(cards) {}

DryState& State() {
  static DryState* state = new DryState(CardsOfEnvironment());
  return *state;
}

bool IsDevice(int device) { return device >= 0 && static_cast<std::size_t>(device) < State().cards.size(); }

int CurrentDevice() { return current_device; }
void SetCurrentDevice(int device) { current_device = device; }

cudaError_t Report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t LastError() { return last_error; }
void ClearLastError() { last_error = cudaSuccess; }

void NameRefusedCall(const char* call) {
  static std::mutex* mu = new std::mutex;
  static std::set<std::string>* named = new std::set<std::string>;
  const std::lock_guard<std::mutex> lock(*mu);
  if (named->insert(call).second) {
    std::fprintf(stderr, "headroom dry CUDA: %s is not supported on a dry card\n", call);
  }
}

}  // namespace headroom::dry_cuda

int headroom_dry_cuda_present(void) { return 1; }

int headroom_dry_cuda_set_held_by_others(int device, uint64_t bytes) {
  if (!headroom::dry_cuda::IsDevice(device)) return -1;
  headroom::dry_cuda::State().memory.SetHeldByOthers(device, bytes);
  return 0;
}
