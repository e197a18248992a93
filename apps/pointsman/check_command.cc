#include <algorithm>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "config/config_page.h"
#include "config_flags.h"
#include "policies/register.h"

namespace pointsman {
namespace {

struct CheckFlags {
  ConfigFlags config;
  bool markdown = false;
};

void run_check(const CheckFlags& flags) {
  if (flags.markdown) {
    std::fputs(config_markdown().c_str(), stdout);
    return;
  }
  const Registry registry = make_registry();
  const Result<LoadedConfig> loaded = effective_config(flags.config, registry);
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    throw CLI::RuntimeError(1);
  }
  std::size_t key_width = 0;
  std::size_t value_width = 0;
  const std::vector<EffectiveValue> values = effective_values(*loaded);
  for (const EffectiveValue& value : values) {
    key_width = std::max(key_width, value.key.size());
    // A long list does not push the origins of all others off the screen.
    if (value.value.size() <= 40) value_width = std::max(value_width, value.value.size());
  }
  for (const EffectiveValue& value : values) {
    std::printf("%-*s  %-*s  %s\n", static_cast<int>(key_width), value.key.c_str(),
                static_cast<int>(value_width), value.value.c_str(), value.origin.c_str());
  }
  for (const std::string& warning : all_warnings(*loaded)) {
    std::printf("warning: %s\n", warning.c_str());
  }
  std::puts("the configuration is valid");
}

}  // namespace

void add_check_command(CLI::App& app) {
  const auto flags = std::make_shared<CheckFlags>();
  CLI::App* command = app.add_subcommand(
      "check",
      "Validate a configuration; show what is in effect, where it came from, and what is "
      "doubtful");
  add_config_flags(*command, flags->config);
  command->add_option("file", flags->config.file, "The same as -c");
  command->add_flag("--markdown", flags->markdown, "Print docs/config.md instead");
  command->callback([flags] { run_check(*flags); });
}

}  // namespace pointsman
