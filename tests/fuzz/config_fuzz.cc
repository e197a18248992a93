// Any bytes as a configuration file. Reading it must be safe; what is accepted must pass the checks
// again and can be shown; what is refused has a message that names the file.

#include <cstdint>
#include <string>
#include <string_view>

#include "config/load.h"
#include "config/schema.h"
#include "policies/register.h"
#include "support/fuzz_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pointsman;
  using test::check;
  static const Registry registry = make_registry();
  ConfigContext context;
  context.registry = &registry;
  context.environment = [](const std::string& name) -> std::optional<std::string> {
    if (name.size() > 4) return std::nullopt;
    return "value of " + name;
  };
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<LoadedConfig> loaded = load_config(text, "f.yaml", context);
  if (!loaded) {
    check(loaded.error().message.starts_with("f.yaml:"));
    return 0;
  }
  check(validate_config(*loaded).ok());
  for (const Key<Config>& key : config_keys()) check(!key.text(loaded->config).empty());
  (void)config_warnings(loaded->config);
  return 0;
}
