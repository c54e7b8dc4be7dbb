# Run by CPack over the files of all packages, before they are closed: adds the copyright and the changelog that every package has, and
# compresses the man pages.
file(GLOB roots ${CPACK_TEMPORARY_DIRECTORY}/*)
foreach(root IN LISTS roots)
  get_filename_component(component ${root} NAME)
  string(TOUPPER ${component} key)
  set(name ${CPACK_DEBIAN_${key}_PACKAGE_NAME})
  if(NOT name)
    continue()
  endif()
  set(documents ${root}/usr/share/doc/${name})
  file(MAKE_DIRECTORY ${documents})
  configure_file(${CPACK_FSHARD_COPYRIGHT} ${documents}/copyright COPYONLY)
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
  file(WRITE ${documents}/changelog "fshard (${CPACK_FSHARD_VERSION}) unstable; urgency=medium\n\n  * CHANGELOG.md of the sources says what is new.\n\n"
       " -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
  if(component STREQUAL "cuda")
    file(WRITE ${root}/usr/share/lintian/overrides/${name}
         "# NVIDIA's libraries lie where no other program looks: beside its toolkit, or where CUDNN_PATH and NCCL_PATH said.\n"
         "${name}: custom-library-search-path *\n")
  endif()
  file(GLOB_RECURSE pages ${root}/usr/share/man/*.[157])
  execute_process(COMMAND gzip -9n ${documents}/changelog ${pages} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
