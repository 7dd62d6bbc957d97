# Settings that every target shares: language level, warnings, sanitizer,
# compiler cache, fast linker, precompiled headers.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "build type" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # no NDEBUG: checks stay on
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")

# Compiles the files of a folder together, 24 at a time: they read the same
# headers, which is most of a compiler's work. Without it (preset `dev`),
# rebuilding after editing one file is faster, and missing includes are found.
option(HEADROOM_UNITY "compile the files of a room together" OFF)
set(CMAKE_UNITY_BUILD ${HEADROOM_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 24)
if(HEADROOM_UNITY)
  # In a unity build g++ treats .cpp files as headers and warns about classes
  # with members of types that are local to the file.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${CCACHE}")
  # Without these flags ccache cannot cache files that use a precompiled header.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  else()
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(headroom_options INTERFACE)
target_include_directories(headroom_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(headroom_options INTERFACE -Wall -Wextra -Werror)
if(HEADROOM_SANITIZER STREQUAL "address")
  set(_sanitize -fsanitize=address,undefined -fno-omit-frame-pointer)
elseif(HEADROOM_SANITIZER STREQUAL "thread")
  set(_sanitize -fsanitize=thread)
elseif(HEADROOM_SANITIZER)
  message(FATAL_ERROR "[build] HEADROOM_SANITIZER=${HEADROOM_SANITIZER}: use address or thread")
endif()
if(_sanitize)
  add_compile_options(${_sanitize})
  add_link_options(${_sanitize})
endif()

# headroom_library(NAME SOURCES a.cpp b.cpp LINK target ... [TORCH])
# TORCH: uses the precompiled LibTorch header of the target headroom_torch.
# Without LibTorch such a library is declared but not built. Other libraries use
# the precompiled standard header of headroom_standard, except in preset `dev`,
# which finds missing includes.
function(headroom_library name)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC headroom_options ${arg_LINK})
  if(arg_TORCH AND NOT LibTorch_FOUND)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  elseif(arg_TORCH)
    target_link_libraries(${name} PUBLIC LibTorch::cpu)
    target_precompile_headers(${name} REUSE_FROM headroom_torch)
  elseif(HEADROOM_UNITY)
    target_precompile_headers(${name} REUSE_FROM headroom_standard)
  endif()
endfunction()

# headroom_plugin(TARGET exports.map): a shared library that a program loads
# when it needs it (parallel/base/plugin_library.h). It is built beside the
# programs and exports only its factory.
function(headroom_plugin target exports)
  set(_map "${CMAKE_CURRENT_SOURCE_DIR}/${exports}")
  set_target_properties(${target} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
    LINK_DEPENDS "${_map}")
  target_link_options(${target} PRIVATE LINKER:--version-script=${_map})
  if(NOT HEADROOM_SANITIZER)  # the sanitizer's functions are in the program
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
endfunction()

# -O1 saves a fifth of the compile time. With it GCC 12 falsely warns about
# copies beyond the ends of joined strings.
set(HEADROOM_LIGHT_OPTIONS $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
foreach(_warning array-bounds restrict stringop-overflow)
  list(APPEND HEADROOM_LIGHT_OPTIONS $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-${_warning}>)
endforeach()

# Applies to the targets of the calling folder and below.
# REQUIRES: none of their loops takes noticeable time.
function(headroom_optimize_lightly)
  add_compile_options(${HEADROOM_LIGHT_OPTIONS})
endfunction()

# headroom_test(NAME SOURCES a_test.cpp ... LINK target ... [TORCH] [UNITY]
#               [LABEL slow] [TIMEOUT seconds] [SLOW filter SLOW_TIMEOUT seconds]
#               [QUICK filter]); one executable per mirrored folder.
# UNITY: its files are compiled together if HEADROOM_UNITY is on, so no two of
# them may have a helper with the same name. GoogleTest's headers, and
# LibTorch's with them, are compiled once for all tests (tests/support).
# SLOW: a GoogleTest filter; these cases are a separate test with the label
# slow, which runs in rotation (tests/slow_rotation). QUICK is the filter of the
# cases that always run; the default is all others.
function(headroom_test name)
  cmake_parse_arguments(arg "TORCH;UNITY" "LABEL;TIMEOUT;SLOW;SLOW_TIMEOUT;QUICK" "SOURCES;LINK" ${ARGN})
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE
    headroom_options headroom_test_options GTest::gtest_main ${arg_LINK})
  if(arg_TORCH)
    target_link_libraries(${name} PRIVATE LibTorch::cpu)
    target_precompile_headers(${name} REUSE_FROM headroom_test_torch_headers)
  else()
    target_precompile_headers(${name} REUSE_FROM headroom_test_headers)
  endif()
  # The shared header was compiled with -fPIC; the -fPIE of executables would
  # not match it.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  if(NOT arg_UNITY)
    set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  endif()
  target_compile_definitions(${name} PRIVATE
    HEADROOM_SOURCE_DIR="${PROJECT_SOURCE_DIR}" HEADROOM_BUILD_DIR="${CMAKE_BINARY_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
  if(NOT arg_SLOW)
    return()
  endif()
  if(NOT arg_QUICK)
    set(arg_QUICK "-${arg_SLOW}")
  endif()
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "GTEST_FILTER=${arg_QUICK}")
  string(REGEX REPLACE "_test$" "" _stem "${name}")
  headroom_slow_cases(${_stem}_slow_test ${name} "${arg_SLOW}" ${arg_SLOW_TIMEOUT})
endfunction()

# The test `name`: those cases of `program` that the filter selects, alone.
function(headroom_slow_cases name program filter timeout)
  add_test(NAME ${name} COMMAND ${program} "--gtest_filter=${filter}")
  set_tests_properties(${name} PROPERTIES RUN_SERIAL ON LABELS slow TIMEOUT ${timeout})
endfunction()

# headroom_portable(TARGET): makes a program that also runs on older machines
# with fewer packages. Some libraries are then linked statically, and only the
# parts that are used: OpenCV's shared library needs LAPACK, Fortran and GLX,
# fontconfig's needs an expat that needs glibc 2.36.
function(headroom_portable target)
  if(HEADROOM_SANITIZER)  # not meant for other machines
    return()
  endif()
  set_target_properties(${target} PROPERTIES HEADROOM_PORTABLE ON)
  target_link_options(${target} PRIVATE LINKER:--gc-sections)
  target_link_libraries(${target} PRIVATE headroom_older_machines)  # deploy/bundle
endfunction()

# headroom_find_archives(NAME SHARED target-or-file ... ARCHIVES a.a ...
#                        WITH file ...)
# defines NAME: the shared libraries, or for headroom_portable targets the
# archives with the libraries that these need. If an archive is missing, every
# target gets the shared libraries.
function(headroom_find_archives name)
  cmake_parse_arguments(arg "" "" "SHARED;ARCHIVES;WITH" ${ARGN})
  add_library(${name} INTERFACE IMPORTED GLOBAL)
  set(_found)
  foreach(_archive ${arg_ARCHIVES})
    find_library(HEADROOM_ARCHIVE_${_archive} ${_archive})
    mark_as_advanced(HEADROOM_ARCHIVE_${_archive})
    if(NOT HEADROOM_ARCHIVE_${_archive})
      message(STATUS "${name}: no ${_archive}, so headroom-worker needs the shared library")
      target_link_libraries(${name} INTERFACE ${arg_SHARED})
      return()
    endif()
    list(APPEND _found "${HEADROOM_ARCHIVE_${_archive}}")
  endforeach()
  set(_portable $<BOOL:$<TARGET_PROPERTY:HEADROOM_PORTABLE>>)
  foreach(_library ${_found} ${arg_WITH})
    target_link_libraries(${name} INTERFACE $<${_portable}:${_library}>)
  endforeach()
  foreach(_library ${arg_SHARED})
    target_link_libraries(${name} INTERFACE $<$<NOT:${_portable}>:${_library}>)
  endforeach()
endfunction()

# Debian's OpenCVConfig.cmake is only in libopencv-dev, which installs 139
# libraries. Only two libraries and their headers are needed.
function(headroom_find_opencv)
  find_path(OPENCV_INCLUDE_DIR opencv2/core.hpp PATH_SUFFIXES opencv4 REQUIRED)
  find_library(OPENCV_CORE opencv_core REQUIRED)
  find_library(OPENCV_IMGPROC opencv_imgproc REQUIRED)
  find_library(HEADROOM_TBB NAMES tbb libtbb.so.12)
  headroom_find_archives(OpenCV::imgproc SHARED "${OPENCV_IMGPROC}" "${OPENCV_CORE}"
    ARCHIVES libopencv_imgproc.a libopencv_core.a WITH "${HEADROOM_TBB}" z)
  target_include_directories(OpenCV::imgproc SYSTEM INTERFACE "${OPENCV_INCLUDE_DIR}")
endfunction()
