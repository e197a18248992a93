#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "config/config.h"
#include "config/yaml_tree.h"
#include "core/registry.h"

namespace pointsman {

// What reading a configuration needs to know of the world.
struct ConfigContext {
  const Registry* registry = nullptr;  // policies are checked against it
  // An environment variable's value; nothing where it is not set.
  std::function<std::optional<std::string>(const std::string&)> environment;
  // Whether a replica's URL can be used, and what is wrong with it.
  std::function<Result<void>(std::string_view)> check_url;
  // The same text for two URLs of the same replica, whatever their spelling. Asked only for URLs
  // that pass check_url; without it, each URL is a replica of its own.
  std::function<std::string(std::string_view)> replica_place;
  // Whether a metric selector can be used (signals.names), for a known signal.
  std::function<Result<void>(std::string_view signal, std::string_view selector)> check_metric;
};

// A configuration, and where its values came from.
struct LoadedConfig {
  Config config;
  // By key ("timeouts.connect", "policy", "pools", "tokenizers[0].path"): "pointsman.yaml:7" or
  // "--listen". A key that is not here has its default.
  std::map<std::string, std::string> origins;
};

// Reads a configuration file's text. All that is wrong with it is reported at once, one line each:
//   pointsman.yaml:7: policy.chioces: unknown key (known: choices, live; nearest: choices)
// `file` is the name for those lines.
Result<LoadedConfig> load_config(std::string_view text, std::string_view file,
                                 const ConfigContext& context);
// The same from disk.
Result<LoadedConfig> load_config_file(const std::string& path, const ConfigContext& context);

// A replica as the admin port is given one: the keys of an entry of `replicas`, and `pool`.
struct PooledReplica {
  ReplicaConfig replica;
  std::string pool;  // empty: not given
};
Result<PooledReplica> read_pooled_replica(const YamlNode& node, const ConfigContext& context);

// What must hold between values, whether they came from a file or from flags: pools and their
// purposes, an address for each port, a key for an admin port off loopback. One line per fault, as
// above.
Result<void> validate_config(const LoadedConfig& loaded);

// The longest answers that a running router has seen (pointsman_longest_answer_seconds); zero:
// none.
struct LongestAnswers {
  Duration plain{};
  Duration stream{};
};

// What is allowed but doubtful, in plain sentences. Limits are compared with the longest answer
// that the configuration expects, and with what was seen.
std::vector<std::string> config_warnings(const Config& config, const LongestAnswers& seen = {});

// What is doubtful about a replica's URL; empty: nothing. Without a scheme http is meant, and a
// person should be told. A URL that ends in /v1 is most often the base URL of an API's client, and
// then every request would ask for /v1/v1/….
std::string replica_url_warning(std::string_view url);

}  // namespace pointsman
