# What the project links, each found once, each as an imported target.
find_package(PkgConfig REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)
find_package(Threads REQUIRED)

pkg_check_modules(ARCHIVE REQUIRED IMPORTED_TARGET libarchive)
pkg_check_modules(DEFLATE REQUIRED IMPORTED_TARGET libdeflate>=1.10)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(LMDB REQUIRED IMPORTED_TARGET lmdb)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd>=1.4.5)

if(NOT FSHARD_VIPS STREQUAL "OFF")
  pkg_check_modules(VIPS IMPORTED_TARGET vips>=8.12 libtiff-4 libwebp)
  if(NOT VIPS_FOUND AND FSHARD_VIPS STREQUAL "ON")
    message(FATAL_ERROR "FSHARD_VIPS=ON, but libvips, libtiff or libwebp was not found: install libvips-dev, which brings the others")
  endif()
endif()

# 7.88 (Debian 12) is the first that signs for S3 what it does not hold as a whole.
if(NOT FSHARD_CURL STREQUAL "OFF")
  pkg_check_modules(CURL IMPORTED_TARGET libcurl>=7.88)
  pkg_check_modules(CRYPTO IMPORTED_TARGET libcrypto>=1.1.1)
  if(NOT (CURL_FOUND AND CRYPTO_FOUND) AND FSHARD_CURL STREQUAL "ON")
    message(FATAL_ERROR "FSHARD_CURL=ON, but libcurl 7.88 or OpenSSL 1.1.1, or newer ones, were not found: install libcurl4-openssl-dev and libssl-dev")
  endif()
endif()
if(CURL_FOUND AND CRYPTO_FOUND)
  set(FSHARD_STORES ON)
else()
  message(STATUS "datasets on servers (https, s3, gs): left out, libcurl 7.88 or OpenSSL 1.1.1 was not found or not wanted: install libcurl4-openssl-dev and libssl-dev")
endif()

# oneDNN: the CPU backend of the trainer. Not through Debian's dnnl-config.cmake, which demands OpenCL's development files.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(fshard_dnnl INTERFACE)
target_include_directories(fshard_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(fshard_dnnl INTERFACE ${DNNL_LIBRARY})

if(FSHARD_TESTS)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
endif()
