# FindLibTorch: the CPU part of the PyPI wheel torch==2.11.0 as imported
# targets.
#   LibTorch::c10, LibTorch::cpu      compile and link against these
#   LibTorch::cuda                    only if the CUDA half was unpacked too
#   LIBTORCH_ROOT (cache, then environment variable)   the folder with torch/
#
# Why not find_package(Torch): it requires nvcc, changes CUDA flags, links the
# umbrella library with all of CUDA, and exposes the wheel's whole include
# folder, whose old protobuf and fmt headers break gRPC and spdlog. Here only
# ATen, c10, caffe2 and torch are visible, through a folder of links.

set(LIBTORCH_ROOT "$ENV{LIBTORCH_ROOT}" CACHE PATH "folder that holds torch/")

find_path(LibTorch_TORCH_DIR include/torch/headeronly/version.h
  PATHS "${LIBTORCH_ROOT}/torch" "${LIBTORCH_ROOT}" NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu
  PATHS "${LibTorch_TORCH_DIR}/lib" NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10
  PATHS "${LibTorch_TORCH_DIR}/lib" NO_DEFAULT_PATH)

if(LibTorch_TORCH_DIR)
  file(READ "${LibTorch_TORCH_DIR}/include/torch/headeronly/version.h" _version_header)
  foreach(part MAJOR MINOR PATCH)
    string(REGEX MATCH "TORCH_VERSION_${part} ([0-9]+)" _ "${_version_header}")
    list(APPEND _version_parts "${CMAKE_MATCH_1}")
  endforeach()
  list(JOIN _version_parts "." LibTorch_VERSION)
endif()

# libtorch_cpu needs the CUDA 13 runtime and CUPTI even on a machine without a
# GPU. They come from two small wheels beside torch/, else from a CUDA toolkit.
set(_cuda_folders
  "${LibTorch_TORCH_DIR}/../nvidia/cu13/lib" "${LibTorch_TORCH_DIR}/../nvidia/cuda_runtime/lib"
  /usr/local/cuda/lib64 /usr/local/cuda/extras/CUPTI/lib64)
find_file(LibTorch_CUDART libcudart.so.13 PATHS ${_cuda_folders} NO_DEFAULT_PATH)
find_file(LibTorch_CUPTI libcupti.so.13 PATHS ${_cuda_folders} NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_TORCH_DIR LibTorch_CUDART LibTorch_CUPTI
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "run deploy/local/setup.sh, or set HEADROOM_LIBTORCH=/path/to/folder/with/torch")

if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  if(LibTorch_FIND_VERSION AND NOT LibTorch_VERSION VERSION_EQUAL LibTorch_FIND_VERSION)
    message(FATAL_ERROR "[libtorch] found version ${LibTorch_VERSION} in ${LibTorch_TORCH_DIR}, "
      "but ${LibTorch_FIND_VERSION} is needed: run deploy/local/setup.sh")
  endif()
  set(_links "${CMAKE_BINARY_DIR}/libtorch_include")
  file(MAKE_DIRECTORY "${_links}")
  foreach(folder ATen c10 caffe2 torch)
    file(CREATE_LINK "${LibTorch_TORCH_DIR}/include/${folder}" "${_links}/${folder}" SYMBOLIC)
  endforeach()

  find_package(Threads REQUIRED)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LibTorch_C10_LIBRARY}")
  target_include_directories(LibTorch::c10 SYSTEM INTERFACE
    "${_links}" "${_links}/torch/csrc/api/include")
  # With this, LibTorch's headers include only the operators that they use.
  target_compile_definitions(LibTorch::c10 INTERFACE AT_PER_OPERATOR_HEADERS)
  add_library(LibTorch::cpu SHARED IMPORTED)
  set_target_properties(LibTorch::cpu PROPERTIES IMPORTED_LOCATION "${LibTorch_CPU_LIBRARY}")
  target_link_libraries(LibTorch::cpu INTERFACE LibTorch::c10 Threads::Threads)
  # RPATH, not RUNPATH: only RPATH also applies when the wheel's libraries
  # search for CUDA.
  get_filename_component(_cudart_dir "${LibTorch_CUDART}" DIRECTORY)
  get_filename_component(_cupti_dir "${LibTorch_CUPTI}" DIRECTORY)
  target_link_options(LibTorch::cpu INTERFACE LINKER:--disable-new-dtags
    LINKER:-rpath,${LibTorch_TORCH_DIR}/lib LINKER:-rpath,${_cudart_dir} LINKER:-rpath,${_cupti_dir}
    LINKER:-rpath-link,${_cudart_dir} LINKER:-rpath-link,${_cupti_dir})

  find_library(LibTorch_CUDA_LIBRARY torch_cuda
    PATHS "${LibTorch_TORCH_DIR}/lib" NO_DEFAULT_PATH)
  find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda
    PATHS "${LibTorch_TORCH_DIR}/lib" NO_DEFAULT_PATH)
  mark_as_advanced(LibTorch_CUDA_LIBRARY LibTorch_C10_CUDA_LIBRARY)
  if(LibTorch_CUDA_LIBRARY AND LibTorch_C10_CUDA_LIBRARY)
    add_library(LibTorch::c10_cuda SHARED IMPORTED)
    set_target_properties(LibTorch::c10_cuda PROPERTIES
      IMPORTED_LOCATION "${LibTorch_C10_CUDA_LIBRARY}")
    add_library(LibTorch::cuda SHARED IMPORTED)
    set_target_properties(LibTorch::cuda PROPERTIES IMPORTED_LOCATION "${LibTorch_CUDA_LIBRARY}")
    target_link_libraries(LibTorch::cuda INTERFACE LibTorch::cpu LibTorch::c10_cuda)
    # libtorch_cuda registers its kernels when it is loaded, so it is linked
    # even if no symbol of it is used. Its own dependencies may be missing on
    # the machine that links.
    target_link_options(LibTorch::cuda INTERFACE
      LINKER:--no-as-needed LINKER:--allow-shlib-undefined)
  endif()
endif()
mark_as_advanced(LibTorch_TORCH_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_CUDART LibTorch_CUPTI)
