// What the calls of the dry runtime share: the cards, their memory, and, for each thread, its device and last error.
#ifndef HEADROOM_RUNTIME_DRY_CUDA_DRY_STATE_H_
#define HEADROOM_RUNTIME_DRY_CUDA_DRY_STATE_H_

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "card.h"
#include "card_memory.h"
#include "faults.h"

namespace headroom::dry_cuda {

struct DryState {
  explicit DryState(std::vector<Card> described);

  const std::vector<Card> cards;  // Empty when the environment describes none, or wrongly.
  CardMemory memory;
  PinnedMemory pinned;
  Faults faults;

  // From the process that runs dry, or from outside by a file. Returns why `text` cannot be followed, or nothing.
  std::string FollowFaults(const std::string& text);
  // Looks whether the faults' file has changed. Called before each call that faults count.
  void LookAtFaultsFile();

 private:
  std::mutex watching_;
  const std::unique_ptr<WatchedFile> faults_file_;  // What is behind it is guarded by watching_; null where no file was named.
};

// Reads the environment on the first call. Never destroyed: libtorch frees memory and events while the process ends.
DryState& State();

bool IsDevice(int device);

// The calling thread's device, which every call without a device argument means.
int CurrentDevice();
void SetCurrentDevice(int device);

// What every call on a lost card answers, the error of a device-side assertion, which stays; success while the card is well.
// `device` is the current one where it is left out.
cudaError_t ContextError();
cudaError_t ContextError(int device);

// Every call leaves by this door: it returns `error`, and keeps it as the thread's last error unless it is success.
cudaError_t Report(cudaError_t error);
cudaError_t LastError();
void ClearLastError();

// Waits as long as kernels are told to take.
void Synchronize();

// Says once on stderr that `call` cannot be run dry, since the error alone does not tell which call it was.
void NameRefusedCall(const char* call);

}  // namespace headroom::dry_cuda

#endif  // HEADROOM_RUNTIME_DRY_CUDA_DRY_STATE_H_
