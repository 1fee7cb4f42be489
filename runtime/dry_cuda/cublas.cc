// Stand-ins for cuBLAS and for the two calls of cuBLASLt that need a card.
//
// A product computes nothing and succeeds, so that what remains of it is what libtorch allocates around it. NVIDIA's
// headers for cuBLAS are not included: they need the compiler's half-precision headers, and a call that computes
// nothing ignores its arguments anyway. The few types below are the binary interface of cuBLAS 13 as its manual gives
// it.
#include <cstddef>
#include <cstdint>

namespace headroom::dry_cuda {

void NameRefusedCall(const char* call);
bool CurrentCardIsLost();

}  // namespace headroom::dry_cuda

namespace {

enum Status : int { kSuccess = 0, kInvalidValue = 7, kExecutionFailed = 13, kNotSupported = 15 };

// What a handle must remember: the modes can be read back.
struct Handle {
  int math_mode = 0;     // CUBLAS_DEFAULT_MATH
  int pointer_mode = 0;  // CUBLAS_POINTER_MODE_HOST
};

struct MatmulHeuristicResult {
  std::uint64_t algorithm[8];
  std::size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(MatmulHeuristicResult) == 96);

}  // namespace

extern "C" {

Status cublasCreate_v2(Handle** handle) {
  if (handle == nullptr) return kInvalidValue;
  *handle = new Handle;
  return kSuccess;
}

Status cublasDestroy_v2(Handle* handle) {
  delete handle;
  return kSuccess;
}

Status cublasSetMathMode(Handle* handle, int mode) {
  handle->math_mode = mode;
  return kSuccess;
}

Status cublasGetMathMode(Handle* handle, int* mode) {
  *mode = handle->math_mode;
  return kSuccess;
}

Status cublasSetPointerMode_v2(Handle* handle, int mode) {
  handle->pointer_mode = mode;
  return kSuccess;
}

Status cublasGetPointerMode_v2(Handle* handle, int* mode) {
  *mode = handle->pointer_mode;
  return kSuccess;
}

// The one algorithm needs no workspace. libtorch allocates the workspace that it offers before it asks, whatever the
// answer, so that memory is as on a card.
Status cublasLtMatmulAlgoGetHeuristic(void* /*handle*/, void* /*operation*/, void* /*a*/, void* /*b*/, void* /*c*/, void* /*d*/,
                                      void* /*preference*/, int requested, MatmulHeuristicResult* results, int* returned) {
  if (requested < 1 || results == nullptr || returned == nullptr) return kInvalidValue;
  results[0] = MatmulHeuristicResult{};
  *returned = 1;
  return kSuccess;
}

// Succeeds while the card is well, as every call below that goes by its name. All of them take their results in device memory, or,
// the dot products, where the pointer mode says: libtorch sets it to the device.
Status headroom_dry_cublas_computes_nothing() { return headroom::dry_cuda::CurrentCardIsLost() ? kExecutionFailed : kSuccess; }

}  // extern "C"

#define HEADROOM_COMPUTES_NOTHING(call) extern "C" Status call() __attribute__((alias("headroom_dry_cublas_computes_nothing")));

HEADROOM_COMPUTES_NOTHING(cublasSetStream_v2)
HEADROOM_COMPUTES_NOTHING(cublasSetWorkspace_v2)
HEADROOM_COMPUTES_NOTHING(cublasLtMatmul)

HEADROOM_COMPUTES_NOTHING(cublasSgemm_v2)
HEADROOM_COMPUTES_NOTHING(cublasDgemm_v2)
HEADROOM_COMPUTES_NOTHING(cublasCgemm_v2)
HEADROOM_COMPUTES_NOTHING(cublasZgemm_v2)
HEADROOM_COMPUTES_NOTHING(cublasSgemmEx)
HEADROOM_COMPUTES_NOTHING(cublasGemmEx)
HEADROOM_COMPUTES_NOTHING(cublasSgemmStridedBatched)
HEADROOM_COMPUTES_NOTHING(cublasDgemmStridedBatched)
HEADROOM_COMPUTES_NOTHING(cublasCgemmStridedBatched)
HEADROOM_COMPUTES_NOTHING(cublasZgemmStridedBatched)
HEADROOM_COMPUTES_NOTHING(cublasGemmStridedBatchedEx)

HEADROOM_COMPUTES_NOTHING(cublasSgemv_v2)
HEADROOM_COMPUTES_NOTHING(cublasDgemv_v2)
HEADROOM_COMPUTES_NOTHING(cublasCgemv_v2)
HEADROOM_COMPUTES_NOTHING(cublasZgemv_v2)

HEADROOM_COMPUTES_NOTHING(cublasSdot_v2)
HEADROOM_COMPUTES_NOTHING(cublasDdot_v2)
HEADROOM_COMPUTES_NOTHING(cublasCdotc_v2)
HEADROOM_COMPUTES_NOTHING(cublasCdotu_v2)
HEADROOM_COMPUTES_NOTHING(cublasZdotc_v2)
HEADROOM_COMPUTES_NOTHING(cublasZdotu_v2)
HEADROOM_COMPUTES_NOTHING(cublasDotEx)

HEADROOM_COMPUTES_NOTHING(cublasStrsm_v2)
HEADROOM_COMPUTES_NOTHING(cublasDtrsm_v2)
HEADROOM_COMPUTES_NOTHING(cublasCtrsm_v2)
HEADROOM_COMPUTES_NOTHING(cublasZtrsm_v2)
HEADROOM_COMPUTES_NOTHING(cublasStrsmBatched)
HEADROOM_COMPUTES_NOTHING(cublasDtrsmBatched)
HEADROOM_COMPUTES_NOTHING(cublasCtrsmBatched)
HEADROOM_COMPUTES_NOTHING(cublasZtrsmBatched)

// Factorizations report to the host, where doing nothing would be a lie.
#define HEADROOM_REFUSE_FACTORIZATION(call)     \
  extern "C" Status call() {                    \
    headroom::dry_cuda::NameRefusedCall(#call); \
    return kNotSupported;                       \
  }

HEADROOM_REFUSE_FACTORIZATION(cublasSgetrfBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasDgetrfBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasCgetrfBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasZgetrfBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasSgetrsBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasDgetrsBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasCgetrsBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasZgetrsBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasSgeqrfBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasDgeqrfBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasCgeqrfBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasZgeqrfBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasSgelsBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasDgelsBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasCgelsBatched)
HEADROOM_REFUSE_FACTORIZATION(cublasZgelsBatched)
