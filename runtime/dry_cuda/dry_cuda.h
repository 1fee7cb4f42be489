/* The dry CUDA runtime, as seen by a program that runs on it.
 *
 * libheadroom_dry_cuda.so is preloaded (LD_PRELOAD) in front of NVIDIA's CUDA runtime and cuBLAS, so that libtorch's
 * CUDA path, with its real caching allocator, runs on a machine that has no GPU. Its cards are described by the
 * environment:
 *
 *   HEADROOM_DRY_CARDS           SIZE[:CAPABILITY],...   e.g. "16GiB:8.0,640MiB:7.5"; the capability defaults to 8.0
 *   HEADROOM_DRY_HELD_BY_OTHERS  SIZE,...                what other processes hold of each card; 0 where not given
 *
 * The program headroom_dry sets these, and the loader's variables, and starts another program under them.
 *
 * What is real: which bytes are allocated, held and free on each card; when a card is full; the order of calls; copies
 * between host and device, and memset; errors for wrong devices, streams, events, launch shapes and pointers.
 *
 * What it cannot tell:
 *  - Values. Kernels and matrix products succeed without computing (filling with zeros is a kernel, too), so device memory
 *    holds what was last copied there, by whoever had that memory, and zeros where nothing ever was. A program that brings
 *    a device value to the host and acts on it (a data-dependent shape) acts on noise: mark such an answer unreliable. A
 *    check that compares values must report that it was not made.
 *  - Time. Every call is over when it returns; elapsed times are those of the host.
 *  - Memory that libraries take behind the allocator's back: the CUDA context (300 to 500 MB on a real card), kernel
 *    code, cuDNN's internals. Free memory is the total less what others hold less what cudaMalloc gave, to the byte.
 *    Add an allowance (HEADROOM_DRY_HELD_BY_OTHERS can stand for it) and correct it on a real card.
 *  - Other capabilities than the one that it is told: cuBLAS's workspace and the choice of kernels depend on it, so a
 *    card is a size and a capability, never a size alone.
 *
 * What it does not run: capture into CUDA graphs, memory pools (cudaMallocAsync), virtual memory (expandable segments),
 * sharing between processes, and kernels compiled at run time (TorchScript's fusers: switch them off). Calls for these
 * fail with cudaErrorNotSupported and are named on stderr. cuDNN (convolutions, recurrent layers), cuFFT, cuSPARSE and
 * cuSOLVER find no driver and fail with errors of their own. From capability 9.0 on, libtorch would prefer cuDNN for
 * attention in half precision: headroom_dry sets TORCH_CUDNN_SDPA_DEPRIORITIZED, and the attention that runs instead
 * may take other scratch memory. AddressSanitizer wants its own runtime first in LD_PRELOAD.
 */
#ifndef HEADROOM_RUNTIME_DRY_CUDA_DRY_CUDA_H_
#define HEADROOM_RUNTIME_DRY_CUDA_DRY_CUDA_H_

#include <stdint.h> /* C reads this too. NOLINT(modernize-deprecated-headers) */

#ifdef __cplusplus
extern "C" {
#endif

/* These are defined only in the preloaded library: do not link against them, look them up,
 *
 *   auto present = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "headroom_dry_cuda_present"));
 *   const bool runs_dry = present != nullptr && present() != 0;
 */

/* Returns 1. That it can be found says that the process runs dry. */
int headroom_dry_cuda_present(void);

/* Sets how many bytes of a card other processes hold, from now on; allocations that were granted stay. May be called
 * at any time from any thread. Returns 0, or -1 when there is no such card. */
int headroom_dry_cuda_set_held_by_others(int device, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* HEADROOM_RUNTIME_DRY_CUDA_DRY_CUDA_H_ */
