#include "dry_state.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
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

std::unique_ptr<WatchedFile> FaultsFileOfEnvironment() {
  const char* path = std::getenv(kFaultsFileVariable);
  return path == nullptr || *path == '\0' ? nullptr : std::make_unique<WatchedFile>(path);
}

}  // namespace

DryState::DryState(std::vector<Card> described)
    : cards(std::move(described)), memory(cards), faults_file_(FaultsFileOfEnvironment()) {}

std::string DryState::FollowFaults(const std::string& text) {
  std::string problem;
  const std::optional<FaultPlan> plan = ParseFaults(text, cards, problem);
  if (!plan.has_value()) return problem;
  for (std::size_t i = 0; i < cards.size(); ++i) memory.SetHeldByOthers(static_cast<int>(i), plan->held_by_others[i]);
  faults.Follow(*plan);
  return "";
}

void DryState::LookAtFaultsFile() {
  if (faults_file_ == nullptr) return;
  const std::lock_guard<std::mutex> lock(watching_);
  const std::optional<std::string> text = faults_file_->ReadIfChanged();
  if (!text.has_value()) return;
  const std::string problem = FollowFaults(*text);
  if (!problem.empty()) std::fprintf(stderr, "headroom dry CUDA: %s: %s\n", faults_file_->path().c_str(), problem.c_str());
}

DryState& State() {
  static DryState* state = new DryState(CardsOfEnvironment());
  return *state;
}

bool IsDevice(int device) { return device >= 0 && static_cast<std::size_t>(device) < State().cards.size(); }

int CurrentDevice() { return current_device; }
void SetCurrentDevice(int device) { current_device = device; }

cudaError_t ContextError() { return ContextError(CurrentDevice()); }

cudaError_t ContextError(int device) { return IsDevice(device) && State().faults.IsLost(device) ? cudaErrorAssert : cudaSuccess; }

// For cuBLAS, which knows no error of the runtime.
bool CurrentCardIsLost();
bool CurrentCardIsLost() { return ContextError() != cudaSuccess; }

cudaError_t Report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t LastError() {
  const cudaError_t lost = ContextError();
  return lost != cudaSuccess ? lost : last_error;
}
void ClearLastError() { last_error = cudaSuccess; }

void Synchronize() {
  State().LookAtFaultsFile();
  const auto pause = State().faults.synchronize_takes();
  if (pause.count() > 0) std::this_thread::sleep_for(pause);
}

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

int headroom_dry_cuda_set_faults(const char* faults) {
  if (faults == nullptr) return -1;
  const std::string problem = headroom::dry_cuda::State().FollowFaults(faults);
  if (problem.empty()) return 0;
  std::fprintf(stderr, "headroom dry CUDA: %s\n", problem.c_str());
  return -1;
}
