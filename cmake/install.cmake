# cmake --install build --prefix /usr/local: programs, the libvips plugin, libfshard with its header and pkg-config file, man pages.
add_library(fshard_shared SHARED $<TARGET_OBJECTS:fshard> $<TARGET_OBJECTS:fshard_common>)
target_link_libraries(fshard_shared PRIVATE PkgConfig::JANSSON PkgConfig::LMDB PkgConfig::XXHASH
                      OpenMP::OpenMP_C Threads::Threads m)
set_target_properties(fshard_shared PROPERTIES OUTPUT_NAME fshard VERSION ${PROJECT_VERSION} SOVERSION 0)

install(TARGETS fresize fpack fverify ftrain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS fshard_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(plugin fshard-cuda fshard-vips)
  if(TARGET ${plugin})
    install(TARGETS ${plugin} LIBRARY DESTINATION lib/fshard)
  endif()
endforeach()
install(FILES formats/fshard.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fshard)
install(FILES common/error.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fshard/common)
configure_file(cmake/fshard.pc.in fshard.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/fshard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES man/fpack.1 man/fresize.1 man/ftrain.1 man/fverify.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES man/fshard.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
