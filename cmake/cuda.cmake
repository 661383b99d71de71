# Decides whether this build has the CUDA backend, as the option LEANATTN_CUDA says, and
# for which GPUs. Sets leanattn_has_cuda; if so, enables the language and finds CUTLASS.
if(NOT LEANATTN_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "LEANATTN_CUDA is ${LEANATTN_CUDA}; allowed are AUTO, ON and OFF.")
endif()
set(leanattn_has_cuda OFF)
if(LEANATTN_CUDA STREQUAL "OFF")
  return()
endif()

# The compute capabilities of this machine's GPUs, such as 9.0.
set(capabilities)
execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
  OUTPUT_VARIABLE smi_output ERROR_QUIET RESULT_VARIABLE smi_result)
if(smi_result EQUAL 0)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]+" capabilities "${smi_output}")
  list(REMOVE_DUPLICATES capabilities)
endif()
# A container may have the device and not the program.
if(LEANATTN_CUDA STREQUAL "AUTO" AND NOT capabilities AND NOT EXISTS /dev/nvidia0)
  return()
endif()

# Where CUDA's installer puts nvcc is on nobody's PATH by itself.
find_program(LEANATTN_NVCC nvcc PATHS /usr/local/cuda/bin)
mark_as_advanced(LEANATTN_NVCC)
if(LEANATTN_NVCC AND NOT DEFINED ENV{CUDACXX})
  set(ENV{CUDACXX} ${LEANATTN_NVCC})
endif()
if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)  # it may have been installed since it was looked for
endif()
include(CheckLanguage)
check_language(CUDA)
find_package(CutlassHeaders 4.0)

if(NOT CMAKE_CUDA_COMPILER OR NOT CutlassHeaders_FOUND)
  if(NOT CMAKE_CUDA_COMPILER)
    set(why "no nvcc that works is found; install the CUDA toolkit, or set CUDACXX")
  else()
    set(why "CUTLASS 4 is not found; `scripts/setup cuda` fetches its headers, or set\
 LEANATTN_CUTLASS_INCLUDE to a folder that has cute/ and cutlass/")
  endif()
  if(LEANATTN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LEANATTN_CUDA is ON, but ${why}.")
  endif()
  message(STATUS "leanattn: there is a GPU, but the build is without CUDA: ${why}")
  return()
endif()

# For the GPUs of this machine; else for every one that the kernels run on. Machine code
# runs on later GPUs of the same major version, except that of 90a, which alone has
# Hopper's own instructions; PTX (120 without -real has both) serves what comes later.
# CMake's `native` would give 90.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90a-real 100-real 120)
  if(capabilities)
    list(TRANSFORM capabilities REPLACE "\\." "" OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
    list(TRANSFORM CMAKE_CUDA_ARCHITECTURES APPEND "-real")
    list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^90-" "90a-")
  endif()
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
# CMake 3.25 does not know that nvcc 12 and later have C++20.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(leanattn_has_cuda ON)
message(STATUS "leanattn: with CUDA, for ${CMAKE_CUDA_ARCHITECTURES}")
