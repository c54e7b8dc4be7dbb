# The CUDA backend: a plugin, libfshard-cuda.so, that ftrain loads at --device cuda. Linked into ftrain, cuDNN and cuBLASLt
# would add 50 ms and 200 MB to every start, and ftrain would not start at all where they are missing.
#   FSHARD_CUDA=AUTO  built where nvcc (CUDA 12 or newer) and cuDNN (9.8 or newer) are found
#   FSHARD_CUDA=ON    the same, and a missing piece is an error
#   FSHARD_CUDA=OFF   left out
#   FSHARD_CUDA_KERNELS=FOLDER  of a build: kernels are taken from there, for sanitizers change nothing of what nvcc makes; where there is no build
#                     yet, they are compiled
# Sets FSHARD_NCCL_FOUND: without it one GPU is what can be trained on. Sets FSHARD_CUDA_FOUND. If it is true the CUDA language is on, and there are the targets CUDA::cublasLt, CUDA::cudart_static
# and fshard_cudnn.
set(FSHARD_CUDA_FOUND FALSE)
set(FSHARD_NCCL_FOUND FALSE)
if(FSHARD_CUDA STREQUAL "OFF")
  message(STATUS "CUDA backend: left out, FSHARD_CUDA=OFF")
  return()
endif()

find_package(CUDAToolkit 12.0 QUIET)
# Header and library of one cuDNN: CUDNN_PATH's, the system's, or the one beside the toolkit.
find_path(FSHARD_CUDNN_INCLUDE cudnn.h HINTS ENV CUDNN_PATH PATH_SUFFIXES include
          PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE} ${CUDAToolkit_INCLUDE_DIRS})
find_library(FSHARD_CUDNN_LIBRARY libcudnn.so.9 HINTS ENV CUDNN_PATH PATH_SUFFIXES lib lib64
             PATHS ${CUDAToolkit_LIBRARY_DIR})
set(cudnn_version 0)
if(FSHARD_CUDNN_INCLUDE AND EXISTS ${FSHARD_CUDNN_INCLUDE}/cudnn_version.h)
  file(STRINGS ${FSHARD_CUDNN_INCLUDE}/cudnn_version.h lines REGEX "^#define CUDNN_(MAJOR|MINOR) ")
  string(REGEX REPLACE "[^0-9]*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" cudnn_version "${lines}")
endif()

set(missing "")
if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
  set(missing "nvcc of CUDA 12 or newer was not found: install the CUDA toolkit and put its bin/ on the PATH")
elseif(NOT FSHARD_CUDNN_LIBRARY OR NOT cudnn_version)
  set(missing "cuDNN 9 was not found (cudnn.h and libcudnn.so.9): install it, or set CUDNN_PATH to its folder")
elseif(cudnn_version VERSION_LESS 9.8)
  set(missing "cuDNN is ${cudnn_version}, and 9.8 or newer is needed (${FSHARD_CUDNN_INCLUDE}/cudnn.h)")
elseif(NOT TARGET CUDA::cublasLt OR NOT TARGET CUDA::cudart_static)
  set(missing "libcublasLt.so or libcudart_static.a is not in ${CUDAToolkit_LIBRARY_DIR}")
else()
  # Machine code for Hopper, and PTX that the driver compiles for every other card from Ampere on.
  set(CMAKE_CUDA_ARCHITECTURES 80-virtual 90-real CACHE STRING "as CMake's CUDA_ARCHITECTURES")
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE} CACHE FILEPATH "nvcc")
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(missing "${CUDAToolkit_NVCC_EXECUTABLE} compiles nothing: it needs a g++ of a version that it knows")
  endif()
endif()

if(NOT missing)
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  add_library(fshard_cudnn INTERFACE)
  target_include_directories(fshard_cudnn SYSTEM INTERFACE ${FSHARD_CUDNN_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(fshard_cudnn INTERFACE ${FSHARD_CUDNN_LIBRARY})
  set(FSHARD_CUDA_FOUND TRUE)
  find_path(FSHARD_NCCL_INCLUDE nccl.h HINTS ENV NCCL_PATH PATH_SUFFIXES include PATHS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(FSHARD_NCCL_LIBRARY libnccl.so.2 HINTS ENV NCCL_PATH PATH_SUFFIXES lib lib64
               PATHS ${CUDAToolkit_LIBRARY_DIR} /usr/local/cuda/lib64)
  if(FSHARD_NCCL_INCLUDE AND FSHARD_NCCL_LIBRARY)
    set(FSHARD_NCCL_FOUND TRUE)
    message(STATUS "several GPUs: on, NCCL (${FSHARD_NCCL_LIBRARY})")
  else()
    message(STATUS "several GPUs: left out, NCCL was not found (nccl.h and libnccl.so.2): install it, or set NCCL_PATH to its folder")
  endif()
  message(STATUS "CUDA backend: on, CUDA ${CUDAToolkit_VERSION}, cuDNN ${cudnn_version} (${FSHARD_CUDNN_LIBRARY})")
elseif(FSHARD_CUDA STREQUAL "ON")
  message(FATAL_ERROR "FSHARD_CUDA=ON, but ${missing}")
else()
  message(STATUS "CUDA backend: left out, ${missing}")
endif()
