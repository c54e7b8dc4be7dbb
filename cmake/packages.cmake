# Debian packages, by CPack from the components of install.cmake: `./run package` (preset debian).
#   fshard          programs, their plugins for tars and the CPU, man pages, completions
#   fshard-vips     the plugin for all images but JPEGs; apart, since it brings libvips and what that brings
#   fshard-cuda     the CUDA backend, for the libraries of NVIDIA that it was built with
#   libfshard0      libfshard.so.0; libfshard-dev: its header, man page, files for pkg-config and CMake
#   libfshard-loader0  libfshard_loader.so.0, ftrain's loader for Python
#   python3-fshard  the reader, and the loader where libfshard-loader0 is there
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME fshard)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
# Who makes them, as for Debian's own tools.
set(contact "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
if("$ENV{DEBEMAIL}" STREQUAL "")
  cmake_host_system_information(RESULT host QUERY FQDN)
  set(contact "fshard <root@${host}>")
endif()
set(CPACK_PACKAGE_CONTACT "${contact}")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL programs library loader development python)
foreach(component vips cuda)
  if(TARGET fshard-${component})
    list(APPEND CPACK_COMPONENTS_ALL ${component})
  endif()
endforeach()

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
# shlibdeps looks for libfshard.so.0 among the packages that are made at the same time.
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(about "From a folder of photographs to a trained network, in native C: fresize makes\nimages smaller, fpack packs them, fverify proves the result, ftrain trains.")
# The first line of a component's description is its summary, unless CPack finds another than this, its own.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${CMAKE_PROJECT_NAME} built using CMake")

# fshard_package(COMPONENT NAME SECTION SUMMARY MORE): what the control file says.
function(fshard_package component name section summary more)
  string(TOUPPER ${component} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_COMPONENT_${key}_DESCRIPTION "${summary}\n${about}\n\n${more}" PARENT_SCOPE)
endfunction()
fshard_package(programs fshard science "tool chain from photographs to a trained network"
  "This package has the programs.")
fshard_package(vips fshard-vips science "all image formats for fshard"
  "This package has the plugin that reads and writes all images but JPEGs.")
fshard_package(cuda fshard-cuda contrib/science "CUDA backend of fshard"
  "This package has the plugin that trains on NVIDIA GPUs.")
fshard_package(library libfshard0 libs "library that reads and writes fshard data sets"
  "This package has the shared library.")
fshard_package(loader libfshard-loader0 libs "loader of fshard data sets for other programs"
  "This package has the shared library that makes batches of images for Python.")
fshard_package(development libfshard-dev libdevel "library that reads and writes fshard data sets - development files"
  "This package has what programs that use the library are compiled with.")
fshard_package(python python3-fshard python "Python reader of fshard data sets"
  "This package has the reader for Python, which needs NumPy alone.")

set(same_version "(= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_RECOMMENDS "fshard-vips ${same_version}")
set(CPACK_DEBIAN_VIPS_PACKAGE_DEPENDS "fshard ${same_version}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libfshard0 ${same_version}, libfshard-loader0 ${same_version}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3 (>= 3.9), python3-numpy")
set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS "libfshard-loader0 ${same_version}, python3-zstandard")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS "python3-pil, python3-xxhash, python3-torch")
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS OFF)
# The libraries of NVIDIA come from its packages, or from elsewhere: nobody is made to install them twice.
if(TARGET fshard-cuda)
  set(CPACK_DEBIAN_CUDA_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "fshard ${same_version}, libc6, libgcc-s1, libstdc++6, libjansson4, libxxhash0")
  set(major ${CUDAToolkit_VERSION_MAJOR})
  set(CPACK_DEBIAN_CUDA_PACKAGE_RECOMMENDS
      "libcublas-${major}-${CUDAToolkit_VERSION_MINOR}, libcudnn9-cuda-${major}, libnccl2, libnvjpeg-${major}-${CUDAToolkit_VERSION_MINOR}")
endif()

# What Debian's policy asks of every package, and CPack does not do: before they are closed, and after it.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian_documents.cmake)
set(CPACK_POST_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian_control.cmake)
configure_file(cmake/debian_copyright.in debian_copyright @ONLY)
set(CPACK_FSHARD_COPYRIGHT ${CMAKE_BINARY_DIR}/debian_copyright)
set(CPACK_FSHARD_VERSION ${PROJECT_VERSION})
include(CPack)
