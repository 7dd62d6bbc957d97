# headroom_find_cuda(): checks whether libheadroom_cuda.so can be built here.
# Sets HEADROOM_HAS_CUDA, enables the CUDA language, and defines Headroom::nccl
# and Headroom::cudart. HEADROOM_HAS_NCCL_HEADER and headroom_nccl_header need
# neither nvcc nor a library.
#
# nvcc compiles only raw kernels (plain pointers, about a second each); g++
# compiles everything that includes LibTorch.

set(HEADROOM_CUDA AUTO CACHE STRING
  "build libheadroom_cuda.so: ON, OFF, or AUTO (where nvcc 13, NCCL and LibTorch's CUDA half are)")
set_property(CACHE HEADROOM_CUDA PROPERTY STRINGS AUTO ON OFF)
# The runtime and its headers must have the major version with which LibTorch
# was built.
set(_cuda_major 13)

macro(headroom_find_cuda)
  set(HEADROOM_HAS_CUDA OFF)
  set(HEADROOM_HAS_NCCL_HEADER OFF)
  if(NOT HEADROOM_CUDA STREQUAL "OFF")
    set(_missing "")
    find_program(HEADROOM_NVCC nvcc HINTS ENV CUDACXX PATHS /usr/local/cuda/bin)
    if(HEADROOM_NVCC)
      execute_process(COMMAND "${HEADROOM_NVCC}" --version OUTPUT_VARIABLE _nvcc_version)
      if(NOT _nvcc_version MATCHES "release ${_cuda_major}\\.")
        list(APPEND _missing "nvcc ${_cuda_major} (${HEADROOM_NVCC} is another)")
      endif()
      file(REAL_PATH "${HEADROOM_NVCC}" _cuda_root)
      cmake_path(GET _cuda_root PARENT_PATH _cuda_root)
      cmake_path(GET _cuda_root PARENT_PATH _cuda_root)
    else()
      list(APPEND _missing "nvcc")
    endif()
    find_path(HEADROOM_CUDA_INCLUDE cuda_runtime_api.h HINTS "${_cuda_root}/include")
    find_library(HEADROOM_CUDART cudart HINTS "${_cuda_root}/lib64")
    find_path(HEADROOM_NCCL_INCLUDE nccl.h HINTS "${_cuda_root}/include"
      "${LIBTORCH_ROOT}/nvidia/nccl/include")
    find_library(HEADROOM_NCCL NAMES nccl libnccl.so.2 HINTS "${_cuda_root}/lib64"
      "${LIBTORCH_ROOT}/nvidia/nccl/lib")
    foreach(_part CUDA_INCLUDE CUDART NCCL_INCLUDE NCCL)
      if(NOT HEADROOM_${_part})
        list(APPEND _missing "${_part}")
      endif()
      mark_as_advanced(HEADROOM_${_part})
    endforeach()
    if(HEADROOM_CUDA_INCLUDE AND HEADROOM_NCCL_INCLUDE)
      set(HEADROOM_HAS_NCCL_HEADER ON)
      add_library(headroom_nccl_header INTERFACE)
      target_include_directories(headroom_nccl_header SYSTEM INTERFACE
        "${HEADROOM_CUDA_INCLUDE}" "${HEADROOM_NCCL_INCLUDE}")
    endif()
    if(NOT TARGET LibTorch::cuda)
      list(APPEND _missing "LibTorch's CUDA half (deploy/local/setup.sh fetches it where nvcc is)")
    endif()
    if(HEADROOM_SANITIZER)
      list(APPEND _missing "a build without sanitizers, which nvcc does not know")
    endif()
    list(JOIN _missing ", " _missing)
    if(_missing AND HEADROOM_CUDA STREQUAL "ON")
      message(FATAL_ERROR "[build] HEADROOM_CUDA=ON, but not found: ${_missing}")
    elseif(_missing)
      message(STATUS "CUDA plugin: not built, not found: ${_missing}")
    else()
      set(HEADROOM_HAS_CUDA ON)
      set(CMAKE_CUDA_COMPILER "${HEADROOM_NVCC}")
      set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
      # T4, A100, A10G, L4/L40S, H100/H200, B200, RTX PRO 6000, as in LibTorch's
      # wheel. Later cards use the PTX of the last one.
      set(CMAKE_CUDA_ARCHITECTURES
        "75-real;80-real;86-real;89-real;90-real;100-real;120")
      # The default would add a second, static copy of the runtime.
      set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
      if(CCACHE)
        set(CMAKE_CUDA_COMPILER_LAUNCHER "${CCACHE}")
      endif()
      enable_language(CUDA)
      add_library(Headroom::cudart SHARED IMPORTED)
      set_target_properties(Headroom::cudart PROPERTIES IMPORTED_LOCATION "${HEADROOM_CUDART}")
      target_include_directories(Headroom::cudart SYSTEM INTERFACE "${HEADROOM_CUDA_INCLUDE}")
      add_library(Headroom::nccl SHARED IMPORTED)
      set_target_properties(Headroom::nccl PROPERTIES IMPORTED_LOCATION "${HEADROOM_NCCL}")
      target_include_directories(Headroom::nccl SYSTEM INTERFACE "${HEADROOM_NCCL_INCLUDE}")
      target_link_libraries(Headroom::nccl INTERFACE Headroom::cudart)
      message(STATUS "CUDA plugin: ${HEADROOM_NVCC}, ${CMAKE_CUDA_ARCHITECTURES}, ${HEADROOM_NCCL}")
    endif()
  endif()
endmacro()
