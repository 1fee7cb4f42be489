/* The dry CUDA runtime, as seen by a program that runs on it.
 *
 * libheadroom_dry_cuda.so is preloaded (LD_PRELOAD) in front of NVIDIA's CUDA runtime and cuBLAS, so that libtorch's
 * CUDA path, with its real caching allocator, runs on a machine that has no GPU. Its cards are described by the
 * environment:
 *
 *   HEADROOM_DRY_CARDS           SIZE[:CAPABILITY],...   e.g. "16GiB:8.0,640MiB:7.5"; the capability defaults to 8.0
 *   HEADROOM_DRY_HELD_BY_OTHERS  SIZE,...                what other processes hold of each card; 0 where not given
 *   HEADROOM_DRY_FAULTS_FILE     PATH                    faults to make, below; read again whenever the file changes
 *
 * The program headroom_dry sets these, and the loader's variables, and starts another program under them.
 *
 * Faults, in the file or by headroom_dry_cuda_set_faults: words NAME=VALUE between blanks or line ends. A text is the whole
 * truth: what it does not name is well again, and counts begin anew when it is taken up.
 *
 *   malloc_fails_at=N           the N-th cudaMalloc from now on fails as on a full card
 *   malloc_fails_every=N        the N-th, the 2N-th, ... cudaMalloc fail
 *   malloc_failures=N           so many in a row, each time; 1 where it is not named. libtorch empties its cache and tries
 *                               again, up to three times in all, before it gives up
 *   held_by_others=SIZE,...     what other processes hold of each card; where it is not named, as at the start
 *   memory_query_fails_after=N  N calls of cudaMemGetInfo succeed, no later one does
 *   lost_after_launches=N       N kernels are launched; the next trips an assertion, and from then on every call on its card
 *                               answers cudaErrorAssert for as long as the process lives
 *   synchronize_takes_ms=N      waiting for a card, a stream or an event takes N ms longer, as if kernels took time
 *
 * Write the file elsewhere and move it into place, so that it is never read half written. It is looked at before each call
 * that is counted, and before each question for free memory.
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

/* Takes up these faults (above) instead of all earlier ones. May be called at any time from any thread. Returns 0, or -1
 * where the text cannot be understood, which stderr tells why; then nothing changes. A faults' file, if there is one, has
 * the next word when it changes. */
int headroom_dry_cuda_set_faults(const char* faults);

#ifdef __cplusplus
}
#endif

#endif /* HEADROOM_RUNTIME_DRY_CUDA_DRY_CUDA_H_ */
