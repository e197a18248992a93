#include "config/kv_events_check.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "config/units.h"

namespace pointsman {
namespace {

constexpr std::uint32_t kMostPorts = 65'535;
constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kIpc = "ipc://";

// Ports of one host that something of a replica's is expected on.
struct Ports {
  std::string host;
  std::uint32_t first;
  std::uint32_t count;
  std::string key;      // that says so
  std::string what;     // "the events of http://a:8000"
  bool events = false;  // or replays
};

// Where a replica's URL leads: host in small letters, and port.
std::pair<std::string, std::uint32_t> address_of(std::string_view url) {
  std::uint32_t port = 80;
  const std::size_t scheme = url.find("://");
  if (scheme != std::string_view::npos) {
    if (url.substr(0, scheme) == "https") port = 443;
    url.remove_prefix(scheme + 3);
  }
  url = url.substr(0, url.find('/'));
  const std::size_t colon = url.rfind(':');
  const bool in_brackets = !url.empty() && url.back() == ']';
  if (colon != std::string_view::npos && !in_brackets) {
    port = static_cast<std::uint32_t>(parse_number(url.substr(colon + 1)).value_or(port));
    url = url.substr(0, colon);
  }
  std::string host(url);
  for (char& c : host) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return {host, port};
}

// tcp://*:5557 as 0.0.0.0:5557; empty for other endpoints.
std::string listen_address_of(std::string_view endpoint) {
  if (!endpoint.starts_with(kTcp)) return {};
  endpoint.remove_prefix(kTcp.size());
  if (endpoint.starts_with("*:")) return "0.0.0.0" + std::string(endpoint.substr(1));
  return std::string(endpoint);
}

std::uint32_t port_of(std::string_view address) {
  const double port = parse_number(address.substr(address.rfind(':') + 1)).value_or(0);
  return static_cast<std::uint32_t>(port);
}

std::string range_text(const Ports& ports) {
  if (ports.count == 1) return "port " + std::to_string(ports.first);
  return "ports " + std::to_string(ports.first) + " to " +
         std::to_string(ports.first + ports.count - 1);
}

class Check {
 public:
  explicit Check(const LoadedConfig& loaded)
      : loaded_(loaded), config_(loaded.config), events_(loaded.config.kv_events) {}

  std::vector<KvEventsFault> faults() {
    check_effects();
    check_bind();
    for (std::size_t pool = 0; pool < config_.pools.size(); ++pool) {
      const auto& replicas = config_.pools[pool].replicas;
      for (std::size_t i = 0; i < replicas.size(); ++i) check_replica(replicas[i], path(pool, i));
    }
    check_overlaps();
    return std::move(faults_);
  }

 private:
  void fault(std::string key, std::string what) {
    faults_.push_back({std::move(key), std::move(what)});
  }

  [[nodiscard]] std::string path(std::size_t pool, std::size_t replica) const {
    std::string item = "replicas[" + std::to_string(replica) + "].";
    if (!loaded_.origins.contains("pools")) return item;
    return "pools[" + std::to_string(pool) + "]." + item;
  }

  // Keys that are there and do nothing.
  void check_effects() {
    if (follows_kv_events(config_)) return;
    const KvEventsConfig none;
    const std::pair<const char*, bool> keys[] = {
        {"kv_events.replay_port", events_.replay_port != none.replay_port},
        {"kv_events.topic", events_.topic != none.topic},
        {"kv_events.ranks", events_.ranks != none.ranks},
        {"kv_events.replay_timeout", events_.replay_timeout != none.replay_timeout},
        {"kv_events.table_max_bytes", events_.table_max_bytes != none.table_max_bytes}};
    for (const auto& [key, is_set] : keys) {
      if (!is_set) continue;
      fault(key,
            "has no effect without kv_events.endpoint_port, kv_events.bind or a replica's "
            "kv_events_port");
    }
  }

  void check_bind() {
    if (events_.bind.empty()) return;
    if (events_.endpoint_port != 0) {
      fault("kv_events.bind",
            "cannot be had together with `kv_events.endpoint_port`: engines connect, or are "
            "connected to (a replica may have a kv_events_port of its own beside `bind`)");
    }
    if (!events_.bind.starts_with(kTcp)) {
      if (events_.ranks > 1) {
        fault("kv_events.bind", "'" + events_.bind +
                                    "' has no ports for the other ranks (kv_events.ranks is " +
                                    std::to_string(events_.ranks) + "); use tcp://ADDRESS:PORT");
      }
      return;
    }
    const std::string address = listen_address_of(events_.bind);
    const std::uint32_t port = port_of(address);
    check_range("kv_events.bind", port);
    const std::pair<const char*, const std::string&> others[] = {
        {"listen", config_.listen}, {"admin", config_.admin}, {"observe", config_.observe}};
    for (const auto& [key, other] : others) {
      for (std::uint32_t rank = 0; rank < events_.ranks; ++rank) {
        const std::string ranked =
            address.substr(0, address.rfind(':') + 1) + std::to_string(port + rank);
        if (!listen_addresses_collide(ranked, other)) continue;
        fault("kv_events.bind", "'" + events_.bind + "' cannot be had together with `" +
                                    std::string(key) + "` ('" + other +
                                    "'); give each a port of its own");
      }
    }
  }

  void check_range(const std::string& key, std::uint32_t port) {
    if (port + events_.ranks - 1 <= kMostPorts) return;
    fault(key, std::to_string(port) + " leaves no ports for kv_events.ranks (" +
                   std::to_string(events_.ranks) + "), one above the other; allowed: 1 to " +
                   std::to_string(kMostPorts + 1 - events_.ranks));
  }

  void check_replica(const ReplicaConfig& replica, const std::string& prefix) {
    const bool own_port = replica.kv_events_port != 0;
    const bool connects = own_port || (events_.endpoint_port != 0 && events_.bind.empty());
    const bool heard = connects || !events_.bind.empty();
    const auto [host, http_port] = address_of(replica.url);
    ports_.push_back({host, http_port, 1, prefix + "url", replica.url, false});
    if (own_port) check_range(prefix + "kv_events_port", replica.kv_events_port);
    if (replica.kv_replay_port != 0) {
      check_range(prefix + "kv_replay_port", replica.kv_replay_port);
      if (!heard) {
        fault(prefix + "kv_replay_port",
              "has no effect without the replica's kv_events_port, kv_events.endpoint_port or "
              "kv_events.bind");
      }
    }
    if (connects) {
      ports_.push_back({host, own_port ? replica.kv_events_port : events_.endpoint_port,
                        events_.ranks,
                        own_port ? prefix + "kv_events_port" : "kv_events.endpoint_port",
                        "the events of " + replica.url, true});
    }
    const std::uint32_t replay =
        replica.kv_replay_port != 0 ? replica.kv_replay_port : events_.replay_port;
    if (heard && replay != 0) {
      ports_.push_back(
          {host, replay, events_.ranks,
           replica.kv_replay_port != 0 ? prefix + "kv_replay_port" : "kv_events.replay_port",
           "the replays of " + replica.url, true});
    }
    if (!replica.kv_topic.empty()) check_topic(replica, prefix + "kv_topic");
  }

  void check_topic(const ReplicaConfig& replica, const std::string& key) {
    if (events_.bind.empty()) {
      fault(key, "has no effect without kv_events.bind");
    } else if (replica.kv_events_port != 0) {
      fault(key, "has no effect beside the replica's own kv_events_port");
    }
    if (!replica.kv_topic.starts_with(events_.topic)) {
      fault(key, "'" + replica.kv_topic +
                     "' is never heard: kv_events.topic takes only topics "
                     "that begin with '" +
                     events_.topic + "'");
    }
    for (const auto& [topic, url] : topics_) {
      if (topic != replica.kv_topic) continue;
      std::string what = "'";
      what.append(topic).append("' is that of ").append(url);
      fault(key, what.append(" as well; give each replica its own"));
      return;
    }
    topics_.emplace_back(replica.kv_topic, replica.url);
  }

  // Each pair of keys once: what is wrong with all replicas is one fault.
  void check_overlaps() {
    if (events_.endpoint_port != 0) check_range("kv_events.endpoint_port", events_.endpoint_port);
    if (events_.replay_port != 0) check_range("kv_events.replay_port", events_.replay_port);
    std::vector<std::string> told;
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const Ports& one = ports_[i];
        const Ports& other = ports_[j];
        if (one.host != other.host || !(one.events || other.events)) continue;
        if (one.first >= other.first + other.count || other.first >= one.first + one.count) {
          continue;
        }
        // Told at the key that is of events.
        const Ports& at = one.events ? one : other;
        const Ports& taken = one.events ? other : one;
        if (std::find(told.begin(), told.end(), at.key) != told.end()) continue;
        told.push_back(at.key);
        fault(at.key, range_text(at) + " of " + at.host + " cannot be for " + at.what + " and (" +
                          range_text(taken) + ") for " + taken.what +
                          "; give each ports of its own" +
                          (events_.ranks > 1 ? ", one for each rank" : ""));
      }
    }
  }

  const LoadedConfig& loaded_;
  const Config& config_;
  const KvEventsConfig& events_;
  std::vector<KvEventsFault> faults_;
  std::vector<Ports> ports_;
  std::vector<std::pair<std::string, std::string>> topics_;  // with the replica's URL
};

}  // namespace

std::vector<KvEventsFault> kv_events_faults(const LoadedConfig& loaded) {
  return Check(loaded).faults();
}

bool follows_kv_events(const Config& config) {
  if (config.kv_events.endpoint_port != 0 || !config.kv_events.bind.empty()) return true;
  return std::any_of(config.pools.begin(), config.pools.end(), [](const PoolConfig& pool) {
    return std::any_of(pool.replicas.begin(), pool.replicas.end(),
                       [](const ReplicaConfig& replica) { return replica.kv_events_port != 0; });
  });
}

bool is_zmq_listen_endpoint(const std::string& text) {
  if (text.empty()) return true;
  if (text.starts_with(kIpc)) return text.size() > kIpc.size();
  const std::string address = listen_address_of(text);
  return is_listen_address(address) && port_of(address) != 0;
}

}  // namespace pointsman
