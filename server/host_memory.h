// How much memory this process has of the machine or container that it runs in, and how much it may still take.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>

#include "base/bytes.h"

namespace headroom {

// The container's limit less what it uses (control group v2, then v1), or, where there is no limit, what the kernel says is
// available. `root` is "/" but in tests. INTERNAL where neither can be read.
absl::StatusOr<Bytes> AvailableHostMemory(const std::filesystem::path& root = "/");

struct ProcessMemory {
  Bytes resident{0};  // all pages of the process that are in memory
  // Those that are its own: heap, stacks, host tensors. The rest are pages of files, such as the libraries' code, which come when
  // they are first used and go when the kernel wants them, and so say nothing about what the process keeps.
  Bytes own{0};
};

// What the kernel counts for this process, within a few pages a thread. Cheap: no page table is walked. INTERNAL where it cannot
// be read.
absl::StatusOr<ProcessMemory> ReadProcessMemory(const std::filesystem::path& root = "/");

// Makes malloc keep one arena for each usable processor, where glibc would keep up to eight: threads find one that is free all the
// same, and what each arena keeps for its busiest moment is kept that much fewer times. To be called before the first thread
// starts.
void BoundMallocArenas();
// What requests may take of the host's memory together where the options do not say. `available` is the device's own limit on the
// CPU (`shares_device_memory`), and what the container has left beside a GPU.
//
// - On the CPU tensors and requests come out of the same memory, and counting each against the whole would count it twice. Batches
//   get --memory-fraction of it (0.8), so that requests must live in the rest: a tenth, half of that rest. The other half is for
//   what nobody counts: libraries' scratch, fragmentation of the heap, metrics pages.
// - Beside a GPU the weights and the batches are on the card. A quarter leaves the rest to the CUDA context and libraries (more
// than
//   1 GiB), pinned memory, and the files that a model is loaded from.
// - At least 64 MiB, the largest message: with less a server of a small limit would refuse ordinary requests for ever, and a
// process
//   with libtorch in it takes several times that before it has served anything.
Bytes DefaultHostLimit(bool shares_device_memory, Bytes available);

// Processors that this process may run on; at least 1.
int UsableProcessors();

}  // namespace headroom
