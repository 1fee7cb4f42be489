# Abseil from a folder that travels with the sources: HEADROOM_ABSEIL_DIR with include/ and lib/. Its archives depend on each other
# in circles that its own package spells out target by target; the linker takes what it needs from the group of all.
file(GLOB _abseil_archives "${HEADROOM_ABSEIL_DIR}/lib/libabsl_*.a")
if(NOT _abseil_archives OR NOT EXISTS "${HEADROOM_ABSEIL_DIR}/include/absl/status/status.h")
  message(FATAL_ERROR "HEADROOM_ABSEIL_DIR holds no static Abseil: ${HEADROOM_ABSEIL_DIR}")
endif()
find_package(Threads REQUIRED)
foreach(_name status statusor strings str_format)
  add_library(absl::${_name} INTERFACE IMPORTED)
  target_include_directories(absl::${_name} SYSTEM INTERFACE "${HEADROOM_ABSEIL_DIR}/include")
  target_link_libraries(absl::${_name} INTERFACE "-Wl,--start-group" ${_abseil_archives} "-Wl,--end-group" Threads::Threads)
endforeach()
