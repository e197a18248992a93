#include <cstdint>
#include <string_view>

#include "policies/register.h"
#include "sim/scenario_file.h"

// Any text is a scenario or an error with file and line; nothing else happens.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const pointsman::Registry registry = pointsman::make_registry();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto loaded = pointsman::sim::load_scenario(text, "fuzz.yaml", registry);
  if (!loaded && !loaded.error().message.starts_with("fuzz.yaml:")) __builtin_trap();
  return 0;
}
