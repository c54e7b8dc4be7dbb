# cmake --install build --prefix /usr/local: programs, their plugins, completions for shells, man pages, libfshard with its header and files for
# pkg-config and CMake, and the Python package (PYTHONPATH=PREFIX/share/fshard/python, or `pip install PREFIX/share/fshard/python`). The components
# are the Debian packages of packages.cmake.
add_library(fshard_shared SHARED $<TARGET_OBJECTS:fshard> $<TARGET_OBJECTS:fshard_tar> $<TARGET_OBJECTS:fshard_common>)
target_link_libraries(fshard_shared PRIVATE PkgConfig::JANSSON PkgConfig::LMDB PkgConfig::XXHASH PkgConfig::ZSTD Threads::Threads m)
set_target_properties(fshard_shared PROPERTIES OUTPUT_NAME fshard VERSION ${PROJECT_VERSION} SOVERSION 0)

# All that is installed, and the demo's make-photos, without the tests: what ./run build makes.
add_custom_target(programs DEPENDS fresize fpack fverify ftrain make-photos fshard_shared fshard_loader completions)
foreach(plugin fshard-archive fshard-cpu fshard-cuda fshard-curl fshard-vips)
  if(TARGET ${plugin})
    add_dependencies(programs ${plugin})
  endif()
endforeach()

install(TARGETS fresize fpack fverify ftrain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
foreach(row "archive;programs" "cpu;programs" "curl;programs" "vips;vips" "cuda;cuda")
  list(GET row 0 plugin)
  list(GET row 1 component)
  if(TARGET fshard-${plugin})
    install(TARGETS fshard-${plugin} LIBRARY DESTINATION lib/fshard COMPONENT ${component})
  endif()
endforeach()
install(FILES man/fpack.1 man/fresize.1 man/ftrain.1 man/fverify.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT programs)
install(FILES man/ftrain-recipes.7 DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 COMPONENT programs)

# libfshard: find_package(fshard), then fshard::fshard; or pkg-config.
install(TARGETS fshard_shared EXPORT fshard-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
set_target_properties(fshard_shared PROPERTIES EXPORT_NAME fshard)
target_include_directories(fshard_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/fshard>)
install(FILES formats/fshard.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fshard COMPONENT development)
install(FILES common/error.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fshard/common COMPONENT development)
install(FILES man/fshard.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5 COMPONENT development)
set(FSHARD_CMAKE_FILES ${CMAKE_INSTALL_LIBDIR}/cmake/fshard)
install(EXPORT fshard-targets NAMESPACE fshard:: FILE fshard-config.cmake DESTINATION ${FSHARD_CMAKE_FILES} COMPONENT development)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/fshard-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/fshard-config-version.cmake DESTINATION ${FSHARD_CMAKE_FILES} COMPONENT development)
file(RELATIVE_PATH FSHARD_LIBDIR_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR} /prefix)
configure_file(cmake/fshard.pc.in fshard.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/fshard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# libfshard_loader: what python/fshard/native.py loads.
install(TARGETS fshard_loader LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT loader NAMELINK_COMPONENT development)
install(FILES trainer/library/fshard_loader.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fshard COMPONENT development)

set(FSHARD_PYTHON_FOLDER ${CMAKE_INSTALL_DATADIR}/fshard/python CACHE STRING "where the Python package is installed, below the prefix")
install(DIRECTORY python/fshard DESTINATION ${FSHARD_PYTHON_FOLDER} COMPONENT python FILES_MATCHING PATTERN "*.py" PATTERN "py.typed"
        PATTERN "__pycache__" EXCLUDE)
# For pip; a folder that Python itself looks into needs none of it.
if(NOT FSHARD_PYTHON_FOLDER MATCHES "-packages$")
  install(FILES python/pyproject.toml python/build_wheel.py DESTINATION ${FSHARD_PYTHON_FOLDER} COMPONENT python)
endif()
