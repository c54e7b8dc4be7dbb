# cmake --install build --prefix /usr/local: programs, their plugins, libfshard with its header and pkg-config file, man pages, and
# the Python package (PYTHONPATH=PREFIX/share/fshard/python, or `pip install PREFIX/share/fshard/python`).
add_library(fshard_shared SHARED $<TARGET_OBJECTS:fshard> $<TARGET_OBJECTS:fshard_tar> $<TARGET_OBJECTS:fshard_common>)
target_link_libraries(fshard_shared PRIVATE PkgConfig::JANSSON PkgConfig::LMDB PkgConfig::XXHASH PkgConfig::ZSTD Threads::Threads m)
set_target_properties(fshard_shared PROPERTIES OUTPUT_NAME fshard VERSION ${PROJECT_VERSION} SOVERSION 0)

# All that is installed, and the demo's make-photos, without the tests: what ./run build makes.
add_custom_target(programs DEPENDS fresize fpack fverify ftrain make-photos fshard_shared completions)
foreach(plugin fshard-archive fshard-cpu fshard-cuda fshard-vips)
  if(TARGET ${plugin})
    add_dependencies(programs ${plugin})
  endif()
endforeach()

install(TARGETS fresize fpack fverify ftrain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS fshard_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(plugin fshard-archive fshard-cpu fshard-cuda fshard-vips)
  if(TARGET ${plugin})
    install(TARGETS ${plugin} LIBRARY DESTINATION lib/fshard)
  endif()
endforeach()
install(FILES formats/fshard.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fshard)
install(FILES common/error.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fshard/common)
file(RELATIVE_PATH FSHARD_LIBDIR_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR} /prefix)
configure_file(cmake/fshard.pc.in fshard.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/fshard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES man/fpack.1 man/fresize.1 man/ftrain.1 man/fverify.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES man/fshard.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
install(FILES man/ftrain-recipes.7 DESTINATION ${CMAKE_INSTALL_MANDIR}/man7)
install(DIRECTORY python/fshard DESTINATION ${CMAKE_INSTALL_DATADIR}/fshard/python FILES_MATCHING PATTERN "*.py" PATTERN "py.typed"
        PATTERN "__pycache__" EXCLUDE)
install(FILES python/pyproject.toml python/build_wheel.py DESTINATION ${CMAKE_INSTALL_DATADIR}/fshard/python)
