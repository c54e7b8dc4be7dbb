# What bash, zsh and fish complete: the programs print it from their own tables of options (--help-completion), so it can neither lack an option nor
# have one too many. The build runs them and keeps what they print, as it is to be installed: shells read files, and a program of which the table
# could be asked at each completion would start libraries for it.
set(FSHARD_COMPLETIONS ${CMAKE_BINARY_DIR}/completions)
set(completion_files "")
foreach(program fresize fpack fverify ftrain)
  foreach(row "bash;${program}" "zsh;_${program}" "fish;${program}.fish")
    list(GET row 0 shell)
    list(GET row 1 name)
    set(file ${FSHARD_COMPLETIONS}/${shell}/${name})
    add_custom_command(OUTPUT ${file}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${FSHARD_COMPLETIONS}/${shell}
      COMMAND ${program} --help-completion ${shell} > ${file}
      DEPENDS ${program} VERBATIM COMMENT "Completion of ${program} by ${shell}")
    list(APPEND completion_files ${file})
  endforeach()
endforeach()
add_custom_target(completions ALL DEPENDS ${completion_files})

# Where each shell looks under /usr and /usr/local; Debian's zsh looks for what packages have in a folder of its own.
set(FSHARD_ZSH_COMPLETIONS ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING "where zsh's completions are installed, below the prefix")
install(DIRECTORY ${FSHARD_COMPLETIONS}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT programs)
install(DIRECTORY ${FSHARD_COMPLETIONS}/zsh/ DESTINATION ${FSHARD_ZSH_COMPLETIONS} COMPONENT programs)
install(DIRECTORY ${FSHARD_COMPLETIONS}/fish/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT programs)
