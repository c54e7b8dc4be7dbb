# Run by CPack when the packages are closed: ldconfig is run by a trigger, of the library's package alone, and not by scripts of each, which is what
# CPack 3.25 writes.
foreach(package IN LISTS CPACK_PACKAGE_FILES)
  set(root ${CPACK_TEMPORARY_DIRECTORY}/control)
  file(REMOVE_RECURSE ${root})
  execute_process(COMMAND dpkg-deb -R ${package} ${root} COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE ${root}/DEBIAN/postinst ${root}/DEBIAN/postrm)
  if(package MATCHES "/libfshard(-loader)?0_")
    string(REPLACE "-" "_" soname "libfshard${CMAKE_MATCH_1}")
    file(WRITE ${root}/DEBIAN/triggers "activate-noawait ldconfig\n")
    file(WRITE ${root}/DEBIAN/shlibs "${soname} 0 libfshard${CMAKE_MATCH_1}0 (= ${CPACK_FSHARD_VERSION})\n")
  endif()
  execute_process(COMMAND dpkg-deb --root-owner-group -Zxz -b ${root} ${package} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()
