# Targets follow the folders: adding a file needs no edit here or in any CMakeLists.txt.

# pointsman_library(<folder> [DEPENDS <folder>...] [LIBRARIES <target>...])
# The static library pm_<folder> from src/<folder>/*.cc, or a header-only one where there is none.
# Its headers are a header set: the target all_verify_interface_header_sets compiles each alone.
function(pointsman_library folder)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LIBRARIES" ${ARGN})
  list(TRANSFORM ARG_DEPENDS PREPEND pm_)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cc)
  if(sources)
    add_library(pm_${folder} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(pm_${folder} INTERFACE)
    set(scope INTERFACE)
  endif()
  pointsman_headers(pm_${folder} ${scope} ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/${folder})
  target_link_libraries(pm_${folder} ${scope} ${ARG_DEPENDS} ${ARG_LIBRARIES})
endfunction()

# pointsman_headers(<target> <scope> <base> <dir>)
# Gives <target> the headers of <dir>, included by their path from <base> on.
function(pointsman_headers target scope base dir)
  target_include_directories(${target} ${scope} ${base})
  file(GLOB headers CONFIGURE_DEPENDS ${dir}/*.h)
  if(headers)
    target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS ${base} FILES ${headers})
    set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  endif()
endfunction()

# pointsman_program(<name> <dir> [DEPENDS <folder>...] [LIBRARIES <target>...])
# The executable <name>, at the top of the build folder, from <dir>/*.cc.
function(pointsman_program name dir)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LIBRARIES" ${ARGN})
  list(TRANSFORM ARG_DEPENDS PREPEND pm_)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${dir}/*.cc)
  if(sources)
    add_executable(${name} ${sources})
    target_compile_definitions(${name} PRIVATE POINTSMAN_VERSION="${PROJECT_VERSION}")
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/${dir})
    target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} ${ARG_LIBRARIES})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  endif()
endfunction()

# pointsman_test(<name> <dir> [DEPENDS <folder>...] [LIBRARIES <target>...])
# A GoogleTest program from <dir>/*_test.cc, each test case registered with ctest by its own name.
function(pointsman_test name dir)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LIBRARIES;LABELS" ${ARGN})
  list(TRANSFORM ARG_DEPENDS PREPEND pm_)
  file(GLOB sources CONFIGURE_DEPENDS ${dir}/*_test.cc)
  if(sources)
    add_executable(${name} ${sources})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/src)
    target_compile_definitions(${name} PRIVATE
      POINTSMAN_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data"
      POINTSMAN_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
      POINTSMAN_BINARY="$<TARGET_FILE_DIR:pointsman>/pointsman")
    target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main)
    gtest_discover_tests(${name} PROPERTIES TIMEOUT 300 LABELS "${ARG_LABELS}" DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
