# What `cmake --install` puts where: headers, library, command line, and the
# package that find_package(leanattn) reads.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/leanattn)

install(DIRECTORY include/leanattn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS leanattn EXPORT leanattn-targets)
install(EXPORT leanattn-targets NAMESPACE leanattn:: DESTINATION ${package_dir})
if(LEANATTN_BUILD_TOOLS)  # tools/ installs it; beside a shared library it finds that one
  set_target_properties(leanattn_cli PROPERTIES
    INSTALL_RPATH $ORIGIN/../${CMAKE_INSTALL_LIBDIR})
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

get_target_property(library_type leanattn TYPE)
configure_package_config_file(cmake/leanattn-config.cmake.in leanattn-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(leanattn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/leanattn-config.cmake
  ${PROJECT_BINARY_DIR}/leanattn-config-version.cmake DESTINATION ${package_dir})
