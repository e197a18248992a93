#include "config/load.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "base/ascii.h"
#include "config/kv_events_check.h"
#include "config/policy_reader.h"
#include "config/schema.h"
#include "config/units.h"
#include "config/yaml_tree.h"

namespace pointsman {
namespace {

bool is_section(std::string_view key) {
  return std::ranges::find(config_sections(), key, &Section::name) != config_sections().end();
}

std::string section_of(std::string_view path) {
  const std::size_t point = path.find('.');
  return std::string(point == std::string_view::npos ? std::string_view() : path.substr(0, point));
}

// Replaces ${NAME} in every scalar of the tree.
void substitute(YamlNode& node, const ConfigContext& context, ConfigFaults& faults) {
  for (YamlNode& item : node.items) substitute(item, context, faults);
  for (YamlMember& member : node.members) substitute(member.value, context, faults);
  if (node.kind != YamlNode::Kind::kScalar) return;
  std::string out;
  std::size_t from = 0;
  for (;;) {
    const std::size_t begin = node.text.find("${", from);
    out.append(node.text, from, begin - from);
    if (begin == std::string::npos) break;
    const std::size_t end = node.text.find('}', begin);
    const std::string name =
        end == std::string::npos ? std::string() : node.text.substr(begin + 2, end - begin - 2);
    if (name.empty() || name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuv"
                                               "wxyz0123456789_") != std::string::npos) {
      faults.add(node.line, "",
                 "'${' must be followed by the name of an environment variable and "
                 "a '}'");
      return;
    }
    const std::optional<std::string> value =
        context.environment ? context.environment(name) : std::nullopt;
    if (!value) {
      faults.add(node.line, "", "the environment variable " + name + " is not set");
      return;
    }
    out += *value;
    from = end + 1;
  }
  node.text = std::move(out);
}

bool is_https(std::string_view url) {
  return istarts_with(url, "https://");
}

class Loader {
 public:
  Loader(std::string_view file, const ConfigContext& context) : faults_(file), context_(context) {}

  Result<LoadedConfig> load(YamlNode root) {
    substitute(root, context_, faults_);
    if (!faults_.empty()) return faults_.error();
    if (root.kind == YamlNode::Kind::kMap) {
      for (const YamlMember& member : root.members) read_top(member);
    } else if (root.kind != YamlNode::Kind::kNull) {
      faults_.add(root.line, "", "the file is not a map of keys to values");
    }
    if (!faults_.empty()) return faults_.error();
    const Result<void> valid = validate_config(loaded_);
    if (!valid) return valid.error();
    return std::move(loaded_);
  }

  // Of a request: there is no file and there are no lines.
  Result<PooledReplica> load_replica(YamlNode node) {
    PooledReplica pooled;
    if (node.kind == YamlNode::Kind::kMap) {
      const auto is_pool = [](const YamlMember& member) { return member.key == "pool"; };
      const auto found = std::find_if(node.members.begin(), node.members.end(), is_pool);
      if (found != node.members.end()) {
        if (found->value.kind != YamlNode::Kind::kScalar || !found->value.quoted) {
          faults_.add(node.line, "replica.pool", "is not text");
        }
        pooled.pool = found->value.text;
        node.members.erase(found);
      }
      for (const YamlMember& member : node.members) check_json_type(member);
    } else if (node.kind == YamlNode::Kind::kScalar && !node.quoted) {
      faults_.add(node.line, "replica", "is neither a URL nor a map with a url");
      return faults_.error();
    }
    PoolConfig pool;
    read_replica(node, "replica", pool);
    if (!faults_.empty()) return faults_.error();
    pooled.replica = std::move(pool.replicas.front());
    return pooled;
  }

 private:
  Config& config() { return loaded_.config; }

  // JSON tells text from numbers and switches, which YAML leaves to the reader.
  void check_json_type(const YamlMember& member) {
    if (member.value.kind != YamlNode::Kind::kScalar) return;
    for (const Key<ReplicaConfig>& key : replica_keys()) {
      if (key.path != member.key) continue;
      const bool is_text = key.type != "number" && key.type != "integer" && key.type != "boolean";
      if (is_text == member.value.quoted) return;
      faults_.add(member.line, "replica." + key.path,
                  is_text ? "is not text" : "is text; write it without quotes");
    }
  }

  void note(const std::string& path, int line) { loaded_.origins[path] = faults_.place(line); }

  // An error instead of what the two would mean together.
  void refuse_both(const YamlMember& member, const std::string& other) {
    if (!loaded_.origins.contains(other)) return;
    faults_.add(member.line, member.key,
                "excludes `" + other + "` (" + loaded_.origins[other] +
                    "): list all replicas in the pools, or give `replicas` alone");
  }

  void read_top(const YamlMember& member) {
    if (member.key == "policy") {
      note("policy", member.line);
      config().policy = read_policy(member.value, "policy", *context_.registry, faults_);
    } else if (member.key == "replicas") {
      refuse_both(member, "pools");
      note("replicas", member.line);
      PoolConfig pool;
      read_replicas(member.value, "replicas", pool);
      config().pools.insert(config().pools.begin(), std::move(pool));
    } else if (member.key == "pools") {
      refuse_both(member, "replicas");
      note("pools", member.line);
      read_pools(member.value);
    } else if (member.key == "tokenizers") {
      note("tokenizers", member.line);
      read_tokenizers(member.value);
    } else if (!is_section(member.key)) {
      if (!read_key(config_keys(), member, "", config())) unknown(member, "", top_names());
    } else {
      read_section(member);
    }
  }

  // False: there is no such key.
  template <typename Owner>
  bool read_key(const std::vector<Key<Owner>>& keys, const YamlMember& member,
                const std::string& prefix, Owner& owner, const std::string& shown_prefix = {}) {
    const std::string path = prefix + member.key;
    for (const Key<Owner>& key : keys) {
      if (key.path != path) continue;
      const Result<void> outcome = key.read(owner, member.value);
      if (!outcome) faults_.add(member.line, shown_prefix + path, outcome.error().message);
      if constexpr (std::is_same_v<Owner, Config>) note(path, member.line);
      return true;
    }
    return false;
  }

  void read_section(const YamlMember& section) {
    if (section.value.kind == YamlNode::Kind::kNull)
      return;  // a section whose keys are all comments
    if (section.value.kind != YamlNode::Kind::kMap) {
      faults_.add(section.line, section.key, "is not a map of keys to values");
      return;
    }
    std::vector<std::string> known;
    for (const Key<Config>& key : config_keys()) {
      if (section_of(key.path) == section.key)
        known.push_back(key.path.substr(section.key.size() + 1));
    }
    if (section.key == "signals") known.emplace_back("names");
    for (const YamlMember& member : section.value.members) {
      if (section.key == "signals" && member.key == "names") {
        read_metric_names(member);
      } else if (!read_key(config_keys(), member, section.key + ".", config())) {
        unknown(member, section.key + ".", known);
      }
    }
  }

  void read_metric_names(const YamlMember& names) {
    note("signals.names", names.line);
    if (names.value.kind != YamlNode::Kind::kMap) {
      faults_.add(names.line, "signals.names", "is not a map of signals to metric names");
      return;
    }
    for (const YamlMember& member : names.value.members) {
      const std::string path = "signals.names." + member.key;
      if (member.value.kind != YamlNode::Kind::kScalar) {
        faults_.add(member.line, path, "is not a metric's name");
        continue;
      }
      if (context_.check_metric) {
        const Result<void> outcome = context_.check_metric(member.key, member.value.text);
        if (!outcome) faults_.add(member.line, path, outcome.error().message);
      }
      config().signals.names.push_back({member.key, member.value.text});
    }
  }

  void read_pools(const YamlNode& node) {
    if (node.kind != YamlNode::Kind::kSequence) {
      faults_.add(node.line, "pools", "is not a list of pools");
      return;
    }
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const std::string path = "pools[" + std::to_string(i) + "]";
      const YamlNode& item = node.items[i];
      if (item.kind != YamlNode::Kind::kMap) {
        faults_.add(item.line, path, "is not a map (known keys: name, purpose, policy, replicas)");
        continue;
      }
      config().pools.push_back(read_pool(item, path));
    }
  }

  void read_tokenizers(const YamlNode& node) {
    if (node.kind == YamlNode::Kind::kNull) return;
    if (node.kind != YamlNode::Kind::kSequence) {
      faults_.add(node.line, "tokenizers", "is not a list of maps with models and a path");
      return;
    }
    std::vector<std::string> known;
    for (const Key<TokenizerConfig>& key : tokenizer_keys()) known.push_back(key.path);
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const std::string path = "tokenizers[" + std::to_string(i) + "]";
      const YamlNode& item = node.items[i];
      if (item.kind != YamlNode::Kind::kMap) {
        faults_.add(item.line, path, "is not a map with models and a path");
        continue;
      }
      TokenizerConfig tokenizer;
      for (const YamlMember& member : item.members) {
        if (!read_key(tokenizer_keys(), member, "", tokenizer, path + ".")) {
          unknown(member, path + ".", known);
        }
        note(path + "." + member.key, member.line);
      }
      if (tokenizer.models.empty()) faults_.add(item.line, path, "has no models");
      if (tokenizer.path.empty()) faults_.add(item.line, path, "has no path");
      for (const auto* const names : {&tokenizer.models, &tokenizer.adapters}) {
        for (const std::string& name : *names) {
          if (tokenized_.insert(name).second) continue;
          faults_.add(item.line, path, "'" + name + "' has a tokenizer already");
        }
      }
      config().tokenizers.push_back(std::move(tokenizer));
    }
  }

  PoolConfig read_pool(const YamlNode& node, const std::string& path) {
    PoolConfig pool;
    for (const YamlMember& member : node.members) {
      const std::string place = path + "." + member.key;
      if (member.key == "replicas") {
        read_replicas(member.value, place, pool);
      } else if (member.key == "policy") {
        pool.policy = read_policy(member.value, place, *context_.registry, faults_);
      } else if (member.key == "name" || member.key == "purpose") {
        if (member.value.kind != YamlNode::Kind::kScalar || member.value.text.empty()) {
          faults_.add(member.line, place, "is not a word");
        } else if (member.key == "name") {
          pool.name = member.value.text;
        } else if (!is_purpose(member.value.text)) {
          faults_.add(member.line, place,
                      "'" + member.value.text +
                          "' is not allowed (allowed: general | long_context | long_generation)");
        } else {
          pool.purpose = member.value.text;
        }
      } else {
        unknown(member, path + ".", {"name", "purpose", "policy", "replicas"});
      }
    }
    return pool;
  }

  static bool is_purpose(std::string_view text) {
    return text == "general" || text == "long_context" || text == "long_generation";
  }

  void read_replicas(const YamlNode& node, const std::string& path, PoolConfig& pool) {
    if (node.kind == YamlNode::Kind::kNull) return;
    if (node.kind != YamlNode::Kind::kSequence) {
      const bool lone = node.kind == YamlNode::Kind::kScalar;
      faults_.add(node.line, path,
                  "is not a list of URLs (write " +
                      (lone ? "[" + node.text + "]" : std::string("[http://host:8000, …]")) + ")");
      return;
    }
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      read_replica(node.items[i], path + "[" + std::to_string(i) + "]", pool);
    }
  }

  void read_replica(const YamlNode& node, const std::string& path, PoolConfig& pool) {
    ReplicaConfig replica;
    int url_line = node.line;
    std::string url_path = path;
    if (node.kind == YamlNode::Kind::kScalar) {
      replica.url = node.text;
    } else if (node.kind == YamlNode::Kind::kMap) {
      std::vector<std::string> known;
      for (const Key<ReplicaConfig>& key : replica_keys()) known.push_back(key.path);
      for (const YamlMember& member : node.members) {
        if (!read_key(replica_keys(), member, "", replica, path + ".")) {
          unknown(member, path + ".", known);
        }
        note(path + "." + member.key, member.line);
        if (member.key == "url") {
          url_line = member.line;
          url_path += ".url";
        }
      }
    } else {
      faults_.add(node.line, path, "is neither a URL nor a map with a url");
      return;
    }
    if (replica.url.empty()) {
      faults_.add(url_line, path, "has no url");
      return;
    }
    if (context_.check_url) {
      const Result<void> outcome = context_.check_url(replica.url);
      if (!outcome) {
        faults_.add(url_line, url_path, outcome.error().message);
        return;
      }
    }
    const std::string place =
        context_.replica_place ? context_.replica_place(replica.url) : replica.url;
    const auto [known, is_new] = places_.emplace(place, replica.url);
    if (!is_new) {
      const bool spelt_so = known->second == replica.url;
      faults_.add(url_line, url_path,
                  "'" + replica.url + "' is listed twice" +
                      (spelt_so ? "" : ", first as '" + known->second + "'"));
      return;
    }
    pool.replicas.push_back(std::move(replica));
  }

  void unknown(const YamlMember& member, const std::string& prefix,
               const std::vector<std::string>& known) {
    faults_.add(member.line, prefix + member.key, unknown_key_text(member.key, known));
  }

  static std::vector<std::string> top_names() {
    std::vector<std::string> names = {"policy", "replicas", "pools", "tokenizers"};
    for (const Key<Config>& key : config_keys()) {
      const std::string section = section_of(key.path);
      const std::string& name = section.empty() ? key.path : section;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    return names;
  }

  ConfigFaults faults_;
  const ConfigContext& context_;
  LoadedConfig loaded_;
  std::map<std::string, std::string> places_;  // of each replica, with its URL
  std::set<std::string> tokenized_;            // models and adapters with a tokenizer
};

}  // namespace

Result<LoadedConfig> load_config(std::string_view text, std::string_view file,
                                 const ConfigContext& context) {
  Result<YamlNode> root = parse_yaml(text, file);
  if (!root) return root.error();
  return Loader(file, context).load(std::move(*root));
}

Result<LoadedConfig> load_config_file(const std::string& path, const ConfigContext& context) {
  const auto cannot = [&path](int error, const char* remedy) {
    return Error{ErrorKind::kClient,
                 path + ": cannot be read: " + std::generic_category().message(error) + remedy};
  };
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"), close);
  if (!file) return cannot(errno, errno == ENOENT ? "; is the path right?" : "");
  std::string text;
  char part[16 * 1024];
  while (const std::size_t read = std::fread(part, 1, sizeof(part), file.get())) {
    text.append(part, read);
  }
  if (std::ferror(file.get()) != 0) return cannot(errno, "");
  if (text.empty()) return Error{ErrorKind::kClient, path + ": is empty"};
  return load_config(text, path, context);
}

Result<PooledReplica> read_pooled_replica(const YamlNode& node, const ConfigContext& context) {
  return Loader("", context).load_replica(node);
}

Result<void> validate_config(const LoadedConfig& loaded) {
  const Config& config = loaded.config;
  std::string text;
  const auto fault = [&](const std::string& key, const std::string& what) {
    if (!text.empty()) text += '\n';
    const auto origin = loaded.origins.find(key);
    text += (origin == loaded.origins.end() ? std::string() : origin->second + ": ") + key + ": " +
            what;
  };

  std::set<std::string> names;
  std::set<std::string> purposes;
  for (const PoolConfig& pool : config.pools) {
    if (!names.insert(pool.name).second) {
      fault("pools", "two pools have the name '" + pool.name + "'; give each its own");
    }
    if (!purposes.insert(pool.purpose).second) {
      fault("pools", "two pools have the purpose " + pool.purpose +
                         "; put their replicas into one (a replica may have a weight)");
    }
  }
  if (!config.pools.empty() && !purposes.contains("general")) {
    fault("pools", "no pool has the purpose general, where requests go that belong in no other");
  }
  const std::pair<const char*, const std::string&> ports[] = {
      {"listen", config.listen}, {"admin", config.admin}, {"observe", config.observe}};
  for (std::size_t i = 0; i < std::size(ports); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!listen_addresses_collide(ports[i].second, ports[j].second)) continue;
      // Told where the file has it, if one of the two is a default.
      const bool told = loaded.origins.contains(ports[i].first);
      const auto& [key, address] = ports[told ? i : j];
      const auto& [other, taken] = ports[told ? j : i];
      std::string what = "'" + address;
      what.append("' cannot be had together with `").append(other).append("` ('").append(taken);
      fault(key, what.append("'); give each a port of its own"));
    }
  }
  if (config.admin != "off" && config.admin_access.key.empty() &&
      !is_loopback_address(config.admin)) {
    fault("admin", "'" + config.admin +
                       "' is reachable from other machines, so admin_access.key must be set (or "
                       "listen on 127.0.0.1; `observe` shows metrics without a key)");
  }
  if (config.listen_tls.certificate.empty() &&
      !(config.listen_tls.key.empty() && config.listen_tls.client_ca.empty())) {
    fault(config.listen_tls.key.empty() ? "listen_tls.client_ca" : "listen_tls.key",
          "is of no use without listen_tls.certificate");
  }
  if (config.replica_tls.certificate.empty() && !config.replica_tls.key.empty()) {
    fault("replica_tls.key", "is of no use without replica_tls.certificate");
  }
  for (const KvEventsFault& one : kv_events_faults(loaded)) fault(one.key, one.what);
  if (!text.empty()) return Error{ErrorKind::kClient, text};
  return {};
}

std::vector<std::string> config_warnings(const Config& config, const LongestAnswers& seen) {
  std::vector<std::string> warnings;
  if (config.pools.empty()) {
    warnings.emplace_back("no replicas: requests get a 503 until some are added on the admin port");
  }
  for (const PoolConfig& pool : config.pools) {
    if (pool.replicas.empty()) {
      warnings.push_back("pool " + pool.name + " has no replicas: " +
                         (pool.purpose == "general" ? "requests get a 503 until some are added"
                                                    : "its requests go to the general pool"));
    } else if (pool.replicas.size() == 1) {
      warnings.push_back("pool " + pool.name +
                         " has one replica: there is nothing to choose, and nowhere to retry");
    }
    for (const ReplicaConfig& replica : pool.replicas) {
      if (replica.tls_insecure || (config.replica_tls.insecure && is_https(replica.url))) {
        warnings.push_back("replica " + replica.url +
                           ": its certificate is not verified (insecure): whoever gets between can "
                           "read and change everything");
      }
      std::string doubt = replica_url_warning(replica.url);
      if (!doubt.empty()) warnings.push_back(std::move(doubt));
    }
  }
  if (follows_kv_events(config) && config.kv_events.replay_port == 0) {
    const bool any_asked =
        std::any_of(config.pools.begin(), config.pools.end(), [](const PoolConfig& pool) {
          return std::any_of(
              pool.replicas.begin(), pool.replicas.end(),
              [](const ReplicaConfig& replica) { return replica.kv_replay_port != 0; });
        });
    if (!any_asked) {
      warnings.emplace_back(
          "kv_events has no replay_port: events that were missed, or came before this start, are "
          "never known, and replicas are trusted only after a restart of theirs");
    }
  }
  const auto below = [&](const char* key, Duration value, Duration longest,
                         const char* what_longest, const char* what) {
    if (longest <= value) return;
    warnings.push_back(std::string(key) + " (" + duration_text(value) + ") is below " +
                       what_longest + " (" + duration_text(longest) + "): " + what);
  };
  const auto below_any = [&](const char* key, Duration value, Duration seen_longest,
                             const char* what) {
    below(key, value, config.limits.longest_generation, "limits.longest_generation", what);
    below(key, value, seen_longest, "the longest answer that the router has seen", what);
  };
  below_any("timeouts.first_byte_plain", config.timeouts.first_byte_plain, seen.plain,
            "plain answers that take longer are broken off");
  below_any("timeouts.shutdown_grace", config.timeouts.shutdown_grace,
            std::max(seen.plain, seen.stream), "a shutdown cuts the longest answers");
  if (config.timeouts.upstream_idle >= std::chrono::seconds(5)) {
    warnings.push_back("timeouts.upstream_idle (" + duration_text(config.timeouts.upstream_idle) +
                       ") is not below 5s, after which most engines close idle connections: "
                       "requests will meet connections that are just being closed");
  }
  if (config.health.timeout < config.health.interval / 2) {
    warnings.push_back("health.timeout (" + duration_text(config.health.timeout) +
                       ") is short: a busy engine that answers late counts as failed");
  }
  if (config.limits.body_memory < config.features.max_body) {
    warnings.push_back("limits.body_memory (" + bytes_text(config.limits.body_memory) +
                       ") is below features.max_body (" + bytes_text(config.features.max_body) +
                       "): larger bodies are never held");
  }
  if (config.access.key_file != "off" && config.listen_tls.certificate.empty() &&
      !is_loopback_address(config.listen)) {
    warnings.emplace_back(
        "access.key_file without listen_tls.certificate: clients' keys can be read on their way, "
        "unless a proxy before the router speaks TLS");
  }
  if (config.health.max_ejection < config.health.ejection) {
    warnings.push_back("health.max_ejection (" + duration_text(config.health.max_ejection) +
                       ") is below health.ejection (" + duration_text(config.health.ejection) +
                       "): every ejection lasts the former");
  }
  return warnings;
}

std::string replica_url_warning(std::string_view url) {
  const std::string quoted = "'" + std::string(url) + "'";
  std::string doubt;
  if (url.find("://") == std::string_view::npos) {
    doubt = quoted + " has no scheme: http:// is assumed";
  }
  std::string_view base = url;
  while (base.ends_with('/')) base.remove_suffix(1);
  if (!base.ends_with("/v1") || base.ends_with("//v1")) return doubt;
  if (!doubt.empty()) doubt += "; ";
  return doubt + quoted +
         " ends in /v1, which requests carry in their own paths: the replica would be asked for "
         "/v1/v1/…; leave it out of the URL unless the engine is mounted there";
}

}  // namespace pointsman
