# Finds the headers of CUTLASS and CuTe: in the folder LEANATTN_CUTLASS_INCLUDE (variable
# or environment); else a CUTLASS that CMake knows or CUTLASS_DIR names; else what
# scripts/carry or `scripts/setup cuda` put into build/. Defines CutlassHeaders::CutlassHeaders.
find_package(NvidiaCutlass CONFIG QUIET)  # what CUTLASS installs of itself
find_path(LEANATTN_CUTLASS_INCLUDE cute/arch/mma_sm80.hpp
  HINTS ENV LEANATTN_CUTLASS_INCLUDE ${CUTLASS_DIR} ENV CUTLASS_DIR ${NvidiaCutlass_DIR}/../../..
  PATHS ${PROJECT_SOURCE_DIR}/build/carry ${PROJECT_SOURCE_DIR}/build/cutlass
  PATH_SUFFIXES include
  DOC "The folder that has cute/ and cutlass/")
mark_as_advanced(LEANATTN_CUTLASS_INCLUDE)

set(version_header ${LEANATTN_CUTLASS_INCLUDE}/cutlass/version.h)
if(EXISTS ${version_header})
  file(STRINGS ${version_header} defines REGEX "^#define CUTLASS_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX MATCHALL "[0-9]+" numbers "${defines}")
  list(JOIN numbers "." CutlassHeaders_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CutlassHeaders
  REQUIRED_VARS LEANATTN_CUTLASS_INCLUDE CutlassHeaders_VERSION
  VERSION_VAR CutlassHeaders_VERSION)
if(CutlassHeaders_FOUND AND NOT TARGET CutlassHeaders::CutlassHeaders)
  add_library(CutlassHeaders::CutlassHeaders INTERFACE IMPORTED GLOBAL)
  # Of an imported target, so as system headers: no warnings of theirs.
  target_include_directories(CutlassHeaders::CutlassHeaders INTERFACE ${LEANATTN_CUTLASS_INCLUDE})
endif()
