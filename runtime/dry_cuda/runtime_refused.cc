// The calls that libtorch knows and that cannot be run dry: each fails by name. Without this file they would reach the
// real runtime, which has no driver and would blame that.
//
// The CUDA headers are not included: a refused call ignores its arguments, so that one shape of definition serves all
// of them. With the C calling convention of the platforms that libtorch is built for, the caller removes the arguments.
namespace headroom::dry_cuda {

int RefuseCall(const char* call);

}  // namespace headroom::dry_cuda

#define HEADROOM_REFUSE(call) \
  extern "C" int call() { return headroom::dry_cuda::RefuseCall(#call); }

// Capture into graphs.
HEADROOM_REFUSE(cudaStreamBeginCapture)
HEADROOM_REFUSE(cudaStreamBeginCaptureToGraph)
HEADROOM_REFUSE(cudaStreamEndCapture)
HEADROOM_REFUSE(cudaStreamUpdateCaptureDependencies)
HEADROOM_REFUSE(cudaGraphDebugDotPrint)
HEADROOM_REFUSE(cudaGraphDestroy)
HEADROOM_REFUSE(cudaGraphExecDestroy)
HEADROOM_REFUSE(cudaGraphGetNodes)
HEADROOM_REFUSE(cudaGraphInstantiate)
HEADROOM_REFUSE(cudaGraphInstantiateWithFlags)
HEADROOM_REFUSE(cudaGraphLaunch)
HEADROOM_REFUSE(cudaGraphNodeGetDependencies)

// Memory pools and managed memory.
HEADROOM_REFUSE(cudaMallocAsync)
HEADROOM_REFUSE(cudaFreeAsync)
HEADROOM_REFUSE(cudaMallocManaged)
HEADROOM_REFUSE(cudaDeviceGetDefaultMemPool)
HEADROOM_REFUSE(cudaMemPoolGetAttribute)
HEADROOM_REFUSE(cudaMemPoolSetAccess)
HEADROOM_REFUSE(cudaMemPoolSetAttribute)
HEADROOM_REFUSE(cudaMemPoolTrimTo)

// Sharing between processes.
HEADROOM_REFUSE(cudaIpcGetMemHandle)
HEADROOM_REFUSE(cudaIpcOpenMemHandle)
HEADROOM_REFUSE(cudaIpcCloseMemHandle)
HEADROOM_REFUSE(cudaIpcGetEventHandle)
HEADROOM_REFUSE(cudaIpcOpenEventHandle)

// Variables inside of modules, which are never loaded.
HEADROOM_REFUSE(cudaGetSymbolAddress)
HEADROOM_REFUSE(cudaMemcpyToSymbol)

// Profiling, of which there is nothing to see, and the end of a context that does not exist.
HEADROOM_REFUSE(cudaProfilerStart)
HEADROOM_REFUSE(cudaProfilerStop)
HEADROOM_REFUSE(cudaDeviceReset)
