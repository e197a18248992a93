#include "config_flags.h"

#include <cstdlib>
#include <utility>

#include "base/ascii.h"
#include "config/policy_reader.h"
#include "config/schema.h"
#include "http/url.h"
#include "listen_address.h"
#include "net/asio.h"
#include "net/tls_context.h"
#include "serve_options.h"
#include "signals/engine_metrics.h"

namespace pointsman {
namespace {

Result<void> check_url(std::string_view url) {
  const Result<ReplicaUrl> parsed = parse_replica_url(url);
  if (!parsed) return parsed.error();
  return {};
}

// Only of URLs that can be used.
std::string replica_place(std::string_view url) {
  const Result<ReplicaUrl> parsed = parse_replica_url(url);
  return parsed ? authority_of(parsed->host, parsed->port) + parsed->path_prefix : std::string(url);
}

Result<void> check_metric(std::string_view signal, std::string_view selector) {
  if (!engine_signal(signal)) {
    std::vector<std::string> known;
    for (std::size_t i = 0; i < kEngineSignals; ++i) {
      known.emplace_back(name_of(static_cast<EngineSignal>(i)));
    }
    return Error{ErrorKind::kClient, unknown_key_text(std::string(signal), known)};
  }
  return EngineMetrics::check(selector);
}

// Lays one flag over the configuration, with the checks that the file's key has.
Result<void> apply(const std::string& flag, const std::string& path, const std::string& text,
                   LoadedConfig& loaded) {
  if (text.empty()) return {};
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.text = text;
  for (const Key<Config>& key : config_keys()) {
    if (key.path != path) continue;
    const Result<void> outcome = key.read(loaded.config, node);
    if (!outcome) return Error{ErrorKind::kClient, flag + ": " + outcome.error().message};
    loaded.origins[path] = flag;
  }
  return {};
}

Result<void> apply_policy(const std::string& name, const Registry& registry, LoadedConfig& loaded) {
  if (name.empty()) return {};
  PolicySpec spec;
  spec.preset = name;
  const auto built = registry.build(spec);
  if (!built) return Error{ErrorKind::kClient, "--policy: " + built.error().message};
  loaded.config.policy = std::move(spec);
  loaded.origins["policy"] = "--policy";
  return {};
}

Result<void> apply_replicas(const std::vector<std::string>& urls, LoadedConfig& loaded) {
  if (urls.empty()) return {};
  PoolConfig pool;
  for (const std::string& written : urls) {
    const std::string url(trim(written));
    const Result<void> outcome = check_url(url);
    if (!outcome) return Error{ErrorKind::kClient, "--replicas: " + outcome.error().message};
    for (const ReplicaConfig& other : pool.replicas) {
      if (replica_place(other.url) == replica_place(url)) {
        return Error{ErrorKind::kClient,
                     "--replicas: '" + url + "' is listed twice" +
                         (other.url == url ? "" : ", first as '" + other.url + "'")};
      }
    }
    ReplicaConfig replica;
    replica.url = url;
    pool.replicas.push_back(std::move(replica));
  }
  loaded.config.pools.clear();
  loaded.config.pools.push_back(std::move(pool));
  loaded.origins.erase("pools");
  loaded.origins["replicas"] = "--replicas";
  return {};
}

Result<void> check_listen_tls(const LoadedConfig& loaded) {
  const Result<std::unique_ptr<TlsServer>> server = tls_server(loaded.config);
  if (server) return {};
  const std::string& message = server.error().message;
  const auto origin = loaded.origins.find(message.substr(0, message.find(':')));
  return Error{server.error().kind,
               (origin == loaded.origins.end() ? std::string() : origin->second + ": ") + message};
}

Result<void> check_replica_tls(const LoadedConfig& loaded) {
  const Config& config = loaded.config;
  TlsClients tls;
  std::string text;
  for (std::size_t i = 0; i < config.pools.size(); ++i) {
    const std::string prefix =
        loaded.origins.contains("pools") ? "pools[" + std::to_string(i) + "]." : std::string();
    for (std::size_t j = 0; j < config.pools[i].replicas.size(); ++j) {
      const ReplicaConfig& replica = config.pools[i].replicas[j];
      const Result<ReplicaSpec> spec = replica_spec(replica, "", config, tls);
      if (spec) continue;
      const std::string& message = spec.error().message;
      const std::string path = prefix + "replicas[" + std::to_string(j) + "].";
      const std::string key = message.substr(0, message.find(':'));
      const bool shared = key.starts_with("replica_tls.");
      const auto origin = loaded.origins.find(shared ? key : path + key);
      std::string line = origin == loaded.origins.end() ? std::string() : origin->second + ": ";
      line += (shared ? std::string() : path) + message;
      if (text.find(line) != std::string::npos) continue;  // as many replicas may have it
      text += (text.empty() ? "" : "\n") + line;
    }
  }
  if (!text.empty()) return Error{ErrorKind::kClient, text};
  return {};
}

void append_options(const OptionMap& options, std::string& text) {
  for (std::size_t i = 0; i < options.size(); ++i) {
    text += (i == 0 ? " (" : ", ") + options[i].first + ": " + to_text(options[i].second);
  }
  if (!options.empty()) text += ")";
}

}  // namespace

ConfigContext config_context(const Registry& registry) {
  ConfigContext context;
  context.registry = &registry;
  context.environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): before threads
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
  context.check_url = &check_url;
  context.replica_place = &replica_place;
  context.check_metric = &check_metric;
  return context;
}

void add_config_flags(CLI::App& command, ConfigFlags& flags) {
  command.add_option("-c,--config", flags.file, "Configuration file (docs/config.md)");
  command
      .add_option("--replicas", flags.replicas,
                  "URLs of the replicas, as http://a:8000,http://b:8000")
      ->delimiter(',');
  command.add_option("--policy", flags.policy, "Policy, as `pointsman policies` lists them");
  command.add_option("--listen", flags.listen, "HOST:PORT for clients; port 0: any free one");
  command.add_option("--admin", flags.admin, "HOST:PORT of the admin port, or off");
  command.add_option("--observe", flags.observe, "HOST:PORT of the observe port, or off");
  command.add_option("--access-log", flags.access_log, "off, stdout or a file's path");
  command.add_option("--decision-log", flags.decision_log,
                     "off or a file's path (docs/decision_log.md)");
  command.add_option("--threads", flags.threads, "Data threads; 0: one per core");
}

Result<LoadedConfig> effective_config(const ConfigFlags& flags, const Registry& registry) {
  LoadedConfig loaded;
  if (!flags.file.empty()) {
    Result<LoadedConfig> from_file = load_config_file(flags.file, config_context(registry));
    if (!from_file) return from_file.error();
    loaded = std::move(*from_file);
  } else if (flags.replicas.empty()) {
    return Error{
        ErrorKind::kClient,
        "no replicas: give --replicas http://HOST:PORT,http://HOST:PORT or a file with -c"};
  }
  for (const Result<void>& outcome :
       {apply("--listen", "listen", flags.listen, loaded),
        apply("--admin", "admin", flags.admin, loaded),
        apply("--observe", "observe", flags.observe, loaded),
        apply("--access-log", "log.access", flags.access_log, loaded),
        apply("--decision-log", "decision_log.path", flags.decision_log, loaded),
        apply("--threads", "threads", flags.threads, loaded),
        apply_policy(flags.policy, registry, loaded), apply_replicas(flags.replicas, loaded),
        validate_config(loaded), check_listen_tls(loaded), check_replica_tls(loaded)}) {
    if (!outcome) return outcome.error();
  }
  return loaded;
}

namespace {

// As far as addresses tell without a look-up.
bool is_own_port(const ReplicaUrl& replica, const ListenAddress& listen) {
  if (listen.port == 0 || replica.port != listen.port) return false;
  std::error_code error;
  const auto own = asio::ip::make_address(listen.host, error);
  if (error) return false;
  const auto theirs =
      asio::ip::make_address(replica.host == "localhost" ? "127.0.0.1" : replica.host, error);
  if (error) return false;
  return theirs == own || theirs.is_unspecified() || (own.is_unspecified() && theirs.is_loopback());
}

}  // namespace

std::vector<std::string> own_port_warnings(const Config& config) {
  std::vector<std::string> warnings;
  const Result<ListenAddress> listen = parse_listen_address(config.listen);
  if (!listen) return warnings;
  for (const PoolConfig& pool : config.pools) {
    for (const ReplicaConfig& replica : pool.replicas) {
      const Result<ReplicaUrl> url = parse_replica_url(replica.url);
      if (!url || !is_own_port(*url, *listen)) continue;
      warnings.push_back("replica " + replica.url + " is the router's own data port (listen: " +
                         config.listen + "): requests would go round in circles");
    }
  }
  return warnings;
}

std::vector<std::string> certificate_warnings(const Config& config) {
  std::vector<std::string> warnings;
  const Result<std::unique_ptr<TlsServer>> server = tls_server(config);
  if (server && *server != nullptr) {
    const std::string doubt = (*server)->doubt();
    if (!doubt.empty()) warnings.push_back("listen_tls.certificate: " + doubt);
  }
  TlsClients tls;
  std::vector<ReplicaSpec> specs;  // which keep what they share
  for (const PoolConfig& pool : config.pools) {
    for (const ReplicaConfig& replica : pool.replicas) {
      Result<ReplicaSpec> spec = replica_spec(replica, pool.name, config, tls);
      if (spec) specs.push_back(std::move(*spec));
    }
  }
  for (const std::shared_ptr<TlsClient>& client : tls.all()) {
    const std::string doubt = client->doubt();
    if (!doubt.empty()) warnings.push_back("certificate for replicas: " + doubt);
  }
  return warnings;
}

std::string policy_text(const PolicySpec& spec) {
  std::string text;
  if (!spec.preset.empty()) {
    text = spec.preset;
    append_options(spec.options, text);
    return text;
  }
  const auto stage = [&text](const char* kind, const StageSpec& one, bool weighted) {
    if (one.type.empty()) return;
    text += (text.empty() ? "" : ", ") + std::string(kind) + " " + one.type;
    append_options(one.options, text);
    if (weighted && one.weight != 1.0) text += " × " + to_text(one.weight);
  };
  for (const StageSpec& filter : spec.filters) stage("filter", filter, false);
  stage("sampler", spec.sampler, false);
  for (const StageSpec& scorer : spec.scorers) stage("scorer", scorer, true);
  stage("picker", spec.picker, false);
  return text;
}

std::vector<EffectiveValue> effective_values(const LoadedConfig& loaded) {
  std::vector<EffectiveValue> values;
  const auto origin = [&loaded](const std::string& key) -> std::string {
    const auto found = loaded.origins.find(key);
    return found == loaded.origins.end() ? "default" : found->second;
  };
  values.push_back({"policy", policy_text(loaded.config.policy), origin("policy")});
  const std::string where = origin(loaded.origins.contains("pools") ? "pools" : "replicas");
  for (const PoolConfig& pool : loaded.config.pools) {
    const std::string prefix = "pools." + pool.name + ".";
    values.push_back({prefix + "purpose", pool.purpose, where});
    if (pool.policy) values.push_back({prefix + "policy", policy_text(*pool.policy), where});
    for (const ReplicaConfig& replica : pool.replicas) {
      std::string text = replica.url;
      if (replica.weight != 1.0) text += " weight " + to_text(replica.weight);
      if (!replica.api_key.empty())
        text += replica.api_key_upstream ? " api_key ***, also upstream" : " api_key ***";
      if (!replica.health_path.empty()) text += " health_path " + replica.health_path;
      values.push_back({prefix + "replica", text, where});
    }
  }
  for (std::size_t i = 0; i < loaded.config.tokenizers.size(); ++i) {
    const std::string prefix = "tokenizers[" + std::to_string(i) + "].";
    for (const Key<TokenizerConfig>& key : tokenizer_keys()) {
      const std::string path = prefix + key.path;
      values.push_back({path, key.text(loaded.config.tokenizers[i]), origin(path)});
    }
  }
  for (const MetricName& name : loaded.config.signals.names) {
    values.push_back({"signals.names." + name.signal, name.selector, origin("signals.names")});
  }
  for (const Key<Config>& key : config_keys()) {
    std::string value = key.text(loaded.config);
    if (key.secret && value != "\"\"") value = "***";
    values.push_back({key.path, std::move(value), origin(key.path)});
  }
  return values;
}

}  // namespace pointsman
