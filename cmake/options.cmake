# Build type, warnings, sanitizers, and where things go.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()

option(FSHARD_WERROR "Treat warnings as errors" OFF)
option(FSHARD_TESTS "Build the tests" ON)
set(FSHARD_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize= (address,undefined)")
option(FSHARD_FUZZ "Build the fuzz targets with libFuzzer: needs clang, and FSHARD_SANITIZE" OFF)
set(FSHARD_VIPS "AUTO" CACHE STRING "libvips plugin for everything but JPEG: ON, OFF, AUTO")
set(FSHARD_CURL "AUTO" CACHE STRING "plugin of libcurl and OpenSSL for datasets on servers: ON, OFF, AUTO")
set(FSHARD_CUDA "AUTO" CACHE STRING "CUDA backend: ON, OFF, AUTO (on where nvcc and cuDNN are found)")
set(FSHARD_CUDA_KERNELS "" CACHE PATH "Folder of a build whose CUDA kernels are taken; they are compiled where it is none")

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

add_compile_definitions(_GNU_SOURCE FSHARD_VERSION="${PROJECT_VERSION}")
add_compile_options($<$<COMPILE_LANGUAGE:C>:-Wall> $<$<COMPILE_LANGUAGE:C>:-Wextra>
                    $<$<COMPILE_LANGUAGE:C>:-Wpedantic> $<$<COMPILE_LANGUAGE:C>:-Wshadow>
                    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
                    $<$<COMPILE_LANGUAGE:C>:-Wvla>)
# Every path of an include starts at the root: "common/error.h" says which house it comes from.
include_directories(${PROJECT_SOURCE_DIR})
if(FSHARD_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
if(FSHARD_SANITIZE)
  # C alone: nvcc knows none of these. -g1, lines without variables, is what a report names: variables take a fifth of the compiler's time.
  foreach(flag -fsanitize=${FSHARD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
    add_compile_options($<$<COMPILE_LANGUAGE:C>:${flag}>)
  endforeach()
  add_link_options(-fsanitize=${FSHARD_SANITIZE})
endif()
if(FSHARD_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "FSHARD_FUZZ needs clang, for its libFuzzer: cmake --preset fuzz")
  endif()
  # All code tells the fuzzer where it goes; only the fuzz targets have the fuzzer itself (tests/fuzz).
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link>)
endif()
