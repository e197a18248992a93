# The library of rust/ and the folder src/tokens that gives it to C++.
#
# Cargo builds with the versions of rust/Cargo.lock, and once for all presets of a checkout (into
# build/rust): the sanitizers and the fuzzer see the C++ side alone. Cargo's own settings (CARGO_HOME
# and the rest of its environment) hold as ever. Where there is no toolchain, or an old one, or the
# crates cannot be had, everything else is built and `pointsman` says that it has no token ids.

set(POINTSMAN_RUST 1.92)  # rust/Cargo.toml says the same
option(POINTSMAN_TOKENS "Build with token ids, if there is a Rust toolchain for it" ON)

pointsman_library(tokens DEPENDS base)
target_include_directories(pm_tokens PUBLIC ${CMAKE_SOURCE_DIR})  # "rust/pointsman_tokens.h"
target_compile_definitions(pm_tokens PRIVATE POINTSMAN_RUST="${POINTSMAN_RUST}")

# rustup puts it where a non-login shell does not look.
find_program(CARGO cargo HINTS $ENV{CARGO_HOME}/bin $ENV{HOME}/.cargo/bin)
string(FIND ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR}/build/ is_preset)
if(is_preset EQUAL 0)
  set(rust_folder ${CMAKE_SOURCE_DIR}/build/rust)
else()
  set(rust_folder ${CMAKE_BINARY_DIR}/rust)
endif()
set(tokens_reason "")
if(NOT POINTSMAN_TOKENS)
  set(tokens_reason "POINTSMAN_TOKENS is off")
elseif(NOT CARGO)
  set(tokens_reason "cargo was not found")
else()
  # The folder of cargo comes first, so that it finds its own rustc.
  get_filename_component(cargo_folder ${CARGO} DIRECTORY)
  set(cargo_command ${CMAKE_COMMAND} -E env "PATH=${cargo_folder}:$ENV{PATH}"
      CARGO_TARGET_DIR=${rust_folder} ${CARGO})
  execute_process(COMMAND ${cargo_command} --version OUTPUT_VARIABLE cargo_version ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REGEX MATCH "[0-9]+\\.[0-9]+" cargo_version "${cargo_version}")
  if(NOT cargo_version OR cargo_version VERSION_LESS POINTSMAN_RUST)
    set(tokens_reason "cargo is of version ${cargo_version}, the crates need ${POINTSMAN_RUST}")
  else()
    # Asks now for the crates: without them, and without a network, the build would fail half-way.
    execute_process(COMMAND ${cargo_command} fetch --locked --quiet
                    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}/rust
                    RESULT_VARIABLE fetched ERROR_VARIABLE fetch_error)
    if(NOT fetched EQUAL 0)
      set(tokens_reason "the crates could not be fetched: ${fetch_error}")
    endif()
  endif()
endif()

if(tokens_reason)
  message(STATUS "No token ids in this build: ${tokens_reason}")
  set(POINTSMAN_HAS_TOKENS OFF)
  target_sources(pm_tokens PRIVATE ${CMAKE_SOURCE_DIR}/src/tokens/absent/leaf.cc)
else()
  set(POINTSMAN_HAS_TOKENS ON)
  set(tokens_archive ${rust_folder}/release/libpointsman_tokens.a)
  file(GLOB tokens_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/rust/src/*.rs)
  add_custom_command(
    OUTPUT ${tokens_archive}
    COMMAND ${cargo_command} build --release --locked --quiet
    # Cargo leaves the archive alone where nothing has changed for it.
    COMMAND ${CMAKE_COMMAND} -E touch ${tokens_archive}
    DEPENDS ${tokens_sources} ${CMAKE_SOURCE_DIR}/rust/Cargo.toml ${CMAKE_SOURCE_DIR}/rust/Cargo.lock
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}/rust
    COMMENT "Building the tokenizer library with cargo"
    VERBATIM)
  add_custom_target(tokens_rust DEPENDS ${tokens_archive})
  add_library(pm_tokens_rust STATIC IMPORTED)
  set_target_properties(pm_tokens_rust PROPERTIES IMPORTED_LOCATION ${tokens_archive})
  target_sources(pm_tokens PRIVATE ${CMAKE_SOURCE_DIR}/src/tokens/present/built.cc)
  target_link_libraries(pm_tokens PUBLIC pm_tokens_rust ${CMAKE_DL_LIBS} m)
  add_dependencies(pm_tokens tokens_rust)
endif()
