#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "config/load.h"
#include "core/registry.h"

namespace pointsman {

// The flags by which `serve` and `check` are told what to do: a file, and flags for the common case
// that go before it.
struct ConfigFlags {
  std::string file;
  std::vector<std::string> replicas;
  std::string policy;
  std::string listen;
  std::string admin;
  std::string observe;
  std::string access_log;
  std::string decision_log;
  std::string threads;
};

// How the program checks what a configuration names.
ConfigContext config_context(const Registry& registry);

void add_config_flags(CLI::App& command, ConfigFlags& flags);

// The configuration that results, checked. The error has a line per fault.
Result<LoadedConfig> effective_config(const ConfigFlags& flags, const Registry& registry);

// A warning for each replica that is this router's own data port.
std::vector<std::string> own_port_warnings(const Config& config);

// A warning for each certificate of ours that clients or replicas may not accept.
std::vector<std::string> certificate_warnings(const Config& config);

// "least_kv", "least_work (choices: 2)", "stages: …".
std::string policy_text(const PolicySpec& spec);

// All keys with their values and where these came from, one a line; secrets masked.
struct EffectiveValue {
  std::string key;
  std::string value;
  std::string origin;  // "pointsman.yaml:7", "--listen" or "default"
};
std::vector<EffectiveValue> effective_values(const LoadedConfig& loaded);

}  // namespace pointsman
