// Gives CUDA's source annotations the meaning that they have for an ordinary host compiler: almost none.
//
// NVIDIA's wheels carry the headers of the CUDA runtime, but the header of this name, which those include, belongs to
// the CUDA compiler. This one stands in for it, so that no toolkit is needed, and none that a machine happens to have
// is used.
#ifndef HEADROOM_RUNTIME_DRY_CUDA_ANNOTATIONS_CRT_HOST_DEFINES_H_
#define HEADROOM_RUNTIME_DRY_CUDA_ANNOTATIONS_CRT_HOST_DEFINES_H_

#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __host__
#define __device__
#define __global__
#define __device_builtin__
#define __device_builtin_surface_type__
#define __device_builtin_texture_type__
#define __cudart_builtin__

// Alignment is part of the binary interface (dim3's neighbours, the vector types).
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))

#endif  // HEADROOM_RUNTIME_DRY_CUDA_ANNOTATIONS_CRT_HOST_DEFINES_H_
