# Finds libtorch, with its CUDA half, inside the Python wheel `torch` and the NVIDIA wheels that it depends on. No CUDA toolkit is
# needed: torch's own CMake package asks for one and adds flags of its own, which is why it is not used.
#
# Input:   TORCH_WHEEL_SITE  the site-packages folder; .venv of the source tree by default
# Targets: TorchWheel::torch
# Sets:    HEADROOM_CUDA_INCLUDE_DIR
file(GLOB _site LIST_DIRECTORIES true "${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages")
set(TORCH_WHEEL_SITE "${_site}" CACHE PATH "site-packages folder that holds the wheels torch and nvidia")

find_path(TORCH_WHEEL_INCLUDE_DIR torch/script.h PATHS "${TORCH_WHEEL_SITE}/torch/include" NO_DEFAULT_PATH)
find_path(HEADROOM_CUDA_INCLUDE_DIR cuda_runtime_api.h PATHS "${TORCH_WHEEL_SITE}/nvidia/cu13/include" NO_DEFAULT_PATH)
# A CUDA toolkit's headers elsewhere on the machine must not fill a gap unnoticed.
find_path(TORCH_WHEEL_CRT_INCLUDE_DIR crt/host_defines.h PATHS "${HEADROOM_CUDA_INCLUDE_DIR}" NO_DEFAULT_PATH)
set(_libraries c10 torch_cpu c10_cuda torch_cuda torch)
set(_found "")
foreach(_library IN LISTS _libraries)
  find_library(TORCH_WHEEL_${_library} ${_library} PATHS "${TORCH_WHEEL_SITE}/torch/lib" NO_DEFAULT_PATH)
  list(APPEND _found TORCH_WHEEL_${_library})
endforeach()
find_library(TORCH_WHEEL_cudart NAMES libcudart.so.13 PATHS "${TORCH_WHEEL_SITE}/nvidia/cu13/lib" NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchWheel
  REQUIRED_VARS TORCH_WHEEL_INCLUDE_DIR HEADROOM_CUDA_INCLUDE_DIR TORCH_WHEEL_CRT_INCLUDE_DIR TORCH_WHEEL_cudart ${_found}
  REASON_FAILURE_MESSAGE "run setup/setup, which installs the wheels into .venv")

if(TorchWheel_FOUND AND NOT TARGET TorchWheel::torch)
  add_library(TorchWheel::torch INTERFACE IMPORTED)
  target_include_directories(TorchWheel::torch SYSTEM INTERFACE
    "${TORCH_WHEEL_INCLUDE_DIR}" "${TORCH_WHEEL_INCLUDE_DIR}/torch/csrc/api/include" "${HEADROOM_CUDA_INCLUDE_DIR}"
    "${HEADROOM_CUDA_INCLUDE_DIR}/cccl")
  # libtorch_cuda registers the CUDA kernels from its static constructors and nothing refers to it by name, so the linker must
  # not drop it. The folders of the NVIDIA wheels' other libraries are in libtorch_cuda's own RPATH.
  target_link_options(TorchWheel::torch INTERFACE
    "LINKER:--push-state,--no-as-needed" "${TORCH_WHEEL_torch_cuda}" "${TORCH_WHEEL_c10_cuda}" "LINKER:--pop-state"
    "LINKER:--allow-shlib-undefined")
  # A program that travels finds the wheels of the machine that it comes to by LD_LIBRARY_PATH.
  if(NOT CMAKE_SKIP_RPATH)
    target_link_options(TorchWheel::torch INTERFACE
      "LINKER:-rpath,${TORCH_WHEEL_SITE}/torch/lib" "LINKER:-rpath,${TORCH_WHEEL_SITE}/nvidia/cu13/lib")
  endif()
  target_link_libraries(TorchWheel::torch INTERFACE
    "${TORCH_WHEEL_torch_cpu}" "${TORCH_WHEEL_c10}" "${TORCH_WHEEL_torch_cuda}" "${TORCH_WHEEL_c10_cuda}"
    "${TORCH_WHEEL_cudart}")
endif()
