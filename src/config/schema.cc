#include "config/schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "config/units.h"

namespace pointsman {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kGiB = std::size_t{1} << 30;

Error wrong(const std::string& got, const std::string& allowed, const std::string& hint = {}) {
  return {ErrorKind::kClient, "'" + got + "' is not allowed (allowed: " + allowed +
                                  (hint.empty() ? "" : "; write " + hint) + ")"};
}

// The node's text where it is a scalar.
Result<std::string> scalar(const YamlNode& node, const std::string& expected) {
  switch (node.kind) {
    case YamlNode::Kind::kScalar:
      return node.text;
    case YamlNode::Kind::kNull:
      return Error{ErrorKind::kClient, "has no value (expected: " + expected + ")"};
    case YamlNode::Kind::kSequence:
      return Error{ErrorKind::kClient, "is a list (expected: " + expected + ")"};
    case YamlNode::Kind::kMap:
      return Error{ErrorKind::kClient, "is a map (expected: " + expected + ")"};
  }
  return Error{ErrorKind::kInternal, "unknown kind of node"};
}

std::string list_text(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) {
    if (text.size() > 1) text += ", ";
    text += item;
  }
  return text + "]";
}

// What differs between the types of values.
template <typename T>
struct Kind;

template <>
struct Kind<Duration> {
  static constexpr const char* kName = "duration";
  static std::optional<Duration> parse(const YamlNode& node) { return parse_duration(node.text); }
  static std::string text(Duration value) { return duration_text(value); }
  static std::string hint(const std::string& got) { return duration_hint(got); }
};
template <>
struct Kind<std::size_t> {
  static constexpr const char* kName = "bytes";
  static std::optional<std::size_t> parse(const YamlNode& node) { return parse_bytes(node.text); }
  static std::string text(std::size_t value) { return bytes_text(value); }
  static std::string hint(const std::string& got) { return bytes_hint(got); }
};
template <typename T>
  requires(std::is_same_v<T, std::uint32_t> || std::is_same_v<T, std::uint16_t>)
struct Kind<T> {
  static constexpr const char* kName = "integer";
  static std::optional<T> parse(const YamlNode& node) {
    const std::optional<double> number = parse_number(node.text);
    if (!number || *number != std::floor(*number) || *number < 0 ||
        *number > static_cast<double>(std::numeric_limits<T>::max())) {
      return std::nullopt;
    }
    return static_cast<T>(*number);
  }
  static std::string text(T value) { return std::to_string(value); }
  static std::string hint(const std::string&) { return ""; }
};
template <>
struct Kind<double> {
  static constexpr const char* kName = "number";
  static std::optional<double> parse(const YamlNode& node) { return parse_number(node.text); }
  static std::string text(double value) { return to_text(value); }
  static std::string hint(const std::string&) { return ""; }
};

// Adds the keys of one section to a table.
template <typename Owner, typename Section>
class SectionKeys {
 public:
  // `reach` finds the section's struct in its owner.
  SectionKeys(std::vector<Key<Owner>>& table, std::string prefix, Section& (*reach)(Owner&))
      : table_(table), prefix_(std::move(prefix)), reach_(reach) {}

  // A quantity within [low, high]. With `zero` given, 0 is allowed too and means that.
  template <typename T>
  SectionKeys& add(const char* name, T Section::* member, std::type_identity_t<T> low,
                   std::type_identity_t<T> high, const char* help, const char* zero = nullptr) {
    std::string allowed = Kind<T>::text(low) + " to " + Kind<T>::text(high);
    if (zero != nullptr) allowed += std::string(", or 0: ") + zero;
    return put<T>(
        name, member, Kind<T>::kName, allowed, help,
        [low, high, allowed, zero](const YamlNode& node) -> Result<T> {
          const Result<std::string> text =
              scalar(node, std::string(Kind<T>::kName) + ", " + allowed);
          if (!text) return text.error();
          const std::optional<T> value = Kind<T>::parse(node);
          const bool fits =
              value && ((*value >= low && *value <= high) || (zero != nullptr && *value == T{}));
          if (!fits) {
            return wrong(*text, std::string(Kind<T>::kName) + ", " + allowed,
                         value ? std::string() : Kind<T>::hint(*text));
          }
          return *value;
        },
        [](const T& value) { return Kind<T>::text(value); });
  }

  SectionKeys& add(const char* name, bool Section::* member, const char* help) {
    return put<bool>(
        name, member, "boolean", "true | false", help,
        [](const YamlNode& node) -> Result<bool> {
          const Result<std::string> text = scalar(node, "true | false");
          if (!text) return text.error();
          if (*text != "true" && *text != "false") return wrong(*text, "true | false");
          return *text == "true";
        },
        [](bool value) { return std::string(value ? "true" : "false"); });
  }

  // Text that `valid` accepts; `type` and `allowed` say in words what that is.
  SectionKeys& add(const char* name, std::string Section::* member, const char* type,
                   const char* allowed, bool (*valid)(const std::string&), const char* help) {
    const std::string expected =
        *allowed == '\0' ? std::string(type) : std::string(type) + ", " + allowed;
    return put<std::string>(
        name, member, type, allowed, help,
        [expected, valid](const YamlNode& node) -> Result<std::string> {
          Result<std::string> text = scalar(node, expected);
          if (text && !valid(*text)) return wrong(*text, expected);
          return text;
        },
        [](const std::string& value) { return value.empty() ? "\"\"" : value; });
  }

  SectionKeys& add(const char* name, std::vector<std::string> Section::* member, const char* type,
                   const char* allowed, bool (*valid)(const std::string&), const char* help) {
    const std::string expected = std::string(type) + ", " + allowed;
    return put<std::vector<std::string>>(
        name, member, type, allowed, help,
        [expected, valid](const YamlNode& node) -> Result<std::vector<std::string>> {
          if (node.kind != YamlNode::Kind::kSequence) {
            return Error{ErrorKind::kClient, "is not a list (expected: " + expected + ")"};
          }
          std::vector<std::string> items;
          for (const YamlNode& item : node.items) {
            const Result<std::string> text = scalar(item, expected);
            if (!text) return Error{ErrorKind::kClient, "an entry " + text.error().message};
            if (!valid(*text)) return wrong(*text, expected);
            items.push_back(*text);
          }
          return items;
        },
        &list_text);
  }

  SectionKeys& secret() {
    table_.back().secret = true;
    return *this;
  }

 private:
  template <typename T, typename Read, typename Text>
  SectionKeys& put(const char* name, T Section::* member, std::string type, std::string allowed,
                   const char* help, const Read& read, const Text& text) {
    Key<Owner> key;
    key.path = prefix_ + name;
    key.type = std::move(type);
    key.allowed = std::move(allowed);
    key.help = help;
    key.read = [reach = reach_, member, read](Owner& owner, const YamlNode& node) -> Result<void> {
      auto value = read(node);
      if (!value) return value.error();
      reach(owner).*member = std::move(*value);
      return {};
    };
    key.text = [reach = reach_, member, text](const Owner& owner) -> std::string {
      // The section is found by the same function for reading and for writing.
      return text(reach(const_cast<Owner&>(owner)).*member);  // NOLINT(*-const-cast)
    };
    table_.push_back(std::move(key));
    return *this;
  }

  std::vector<Key<Owner>>& table_;
  std::string prefix_;
  Section& (*reach_)(Owner&);
};

bool any_text(const std::string&) {
  return true;
}
bool listens(const std::string& text) {
  return is_listen_address(text);
}
bool listens_or_off(const std::string& text) {
  return text == "off" || is_listen_address(text);
}
bool is_header_name(const std::string& text) {
  return !text.empty() && text.find_first_not_of(
                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "!#$%&'*+-.^_`|~") == std::string::npos;
}
bool is_path(const std::string& text) {
  return text.starts_with('/') &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c != 0x7F; });
}
bool is_path_or_empty(const std::string& text) {
  return text.empty() || is_path(text);
}
bool is_level(const std::string& text) {
  return text == "debug" || text == "info" || text == "warning" || text == "error";
}
bool is_reject_or_forward(const std::string& text) {
  return text == "reject" || text == "forward";
}
bool is_log_place(const std::string& text) {
  return text == "off" || text == "stdout" || text.find('/') != std::string::npos;
}
// Goes into a header: visible characters and no blanks.
bool is_secret(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

constexpr const char* kPaths = "list of paths";
constexpr const char* kSecretRule = "visible characters; best ${NAME} of an environment variable";
constexpr const char* kPathRule = "each begins with /";

// An integer that needs 64 bits.
Key<Config> seed_key() {
  Key<Config> key;
  key.path = "seed";
  key.type = "integer";
  key.allowed = "0: another one at each start";
  key.help = "Of chance in decisions, so that they can be repeated.";
  key.read = [](Config& config, const YamlNode& node) -> Result<void> {
    const Result<std::string> text = scalar(node, "integer");
    if (!text) return text.error();
    const char* const end = text->data() + text->size();
    const auto read = std::from_chars(text->data(), end, config.seed);
    if (read.ec != std::errc() || read.ptr != end) return wrong(*text, "integer");
    return {};
  };
  key.text = [](const Config& config) { return std::to_string(config.seed); };
  return key;
}

Key<Config> models_unknown_key() {
  Key<Config> key;
  key.path = "models.unknown";
  key.type = "word";
  key.allowed = "reject | forward";
  key.help =
      "A model that no replica names although every one has given its list: 404, or passed on.";
  key.read = [](Config& config, const YamlNode& node) -> Result<void> {
    const Result<std::string> text = scalar(node, "reject | forward");
    if (!text) return text.error();
    if (!is_reject_or_forward(*text)) return wrong(*text, "reject | forward");
    config.models.forward_unknown = *text == "forward";
    return {};
  };
  key.text = [](const Config& config) -> std::string {
    return config.models.forward_unknown ? "forward" : "reject";
  };
  return key;
}

std::vector<Key<Config>> make_config_keys() {
  std::vector<Key<Config>> table;

  SectionKeys<Config, Config>(table, "", [](Config& c) -> Config& { return c; })
      .add("listen", &Config::listen, "address", "HOST:PORT; port 0: any free one", &listens,
           "Where clients connect.")
      .add("admin", &Config::admin, "address", "HOST:PORT or off", &listens_or_off,
           "Where people and tools look after the router: replicas, configuration, and all that "
           "`observe` has. Off loopback `admin_access.key` is required.")
      .add("observe", &Config::observe, "address", "HOST:PORT or off", &listens_or_off,
           "Read-only: /metrics, /healthz, /readyz, for Prometheus and the kubelet.")
      .add("threads", &Config::threads, 1, 256, "Data threads.", "one per core");
  table.push_back(seed_key());

  SectionKeys<Config, SegregationConfig>(
      table, "segregation.", [](Config& c) -> SegregationConfig& { return c.segregation; })
      .add("long_context_tokens", &SegregationConfig::long_context_tokens, 1, 100'000'000,
           "Requests with more prompt tokens go to the pool with purpose long_context.")
      .add("long_generation_tokens", &SegregationConfig::long_generation_tokens, 1, 100'000'000,
           "Else, requests that ask for more output tokens go to the pool with purpose "
           "long_generation.");

  SectionKeys<Config, SaturationConfig>(table, "saturation.",
                                        [](Config& c) -> SaturationConfig& { return c.saturation; })
      .add("kv", &SaturationConfig::kv, 0.01, 1.0, "Live KV use, a share.")
      .add("queue", &SaturationConfig::queue, 1.0, 1e6, "Live queue, requests.")
      .add("prefill_tokens", &SaturationConfig::prefill_tokens, 1.0, 1e9,
           "Outstanding prefill tokens; never below the request's own prompt.");

  SectionKeys<Config, FeaturesConfig>(table, "features.",
                                      [](Config& c) -> FeaturesConfig& { return c.features; })
      .add("max_body", &FeaturesConfig::max_body, kKiB, kGiB,
           "Request bodies up to this size are held, read whole and may be sent again; larger "
           "ones stream through.")
      .add("block_bytes", &FeaturesConfig::block_bytes, 16, 65'536,
           "Bytes of prompt text in one block of the prefix index.")
      .add("bytes_per_token", &FeaturesConfig::bytes_per_token, 0.5, 64.0,
           "For estimating tokens from text.")
      .add("session_headers", &FeaturesConfig::session_headers, "list of header names",
           "in the order of preference", &is_header_name,
           "Headers that name the session; the first one present counts. Without any: "
           "prompt_cache_key, conversation and user of the body, then the first messages.");

  table.push_back(models_unknown_key());

  SectionKeys<Config, TimeoutsConfig>(table, "timeouts.",
                                      [](Config& c) -> TimeoutsConfig& { return c.timeouts; })
      .add("connect", &TimeoutsConfig::connect, milliseconds(10), minutes(5),
           "To open a connection to a replica.")
      .add("first_byte_stream", &TimeoutsConfig::first_byte_stream, seconds(1), hours(24),
           "Until a streamed answer begins.")
      .add("first_byte_plain", &TimeoutsConfig::first_byte_plain, seconds(1), hours(24),
           "Until a plain answer begins, which is when all of it has been generated.")
      .add("gap", &TimeoutsConfig::gap, seconds(1), hours(24), "Between bytes of an answer.")
      .add("head_hold", &TimeoutsConfig::head_hold, Duration{0}, hours(1),
           "How long the head of a stream is held back for its first body byte; until then a lost "
           "replica is a retry and not an error.")
      .add("upstream_idle", &TimeoutsConfig::upstream_idle, Duration{0}, hours(1),
           "How long an unused connection to a replica is kept. Engines close theirs after 5 s.")
      .add("upstream_unacknowledged", &TimeoutsConfig::upstream_unacknowledged, seconds(1),
           hours(1),
           "How long sent data may stay unacknowledged by a replica's host before its exchanges "
           "end as lost (TCP_USER_TIMEOUT).")
      .add("client_head", &TimeoutsConfig::client_head, milliseconds(100), hours(1),
           "For a request's head, from its first byte.")
      .add("client_body_gap", &TimeoutsConfig::client_body_gap, milliseconds(100), hours(1),
           "Between bytes of a request's body.")
      .add("client_idle", &TimeoutsConfig::client_idle, seconds(1), hours(24),
           "Between two requests of a connection.")
      .add("client_stall", &TimeoutsConfig::client_stall, seconds(1), hours(24),
           "A client that takes no byte of its answer for so long is closed.")
      .add("shutdown_delay", &TimeoutsConfig::shutdown_delay, Duration{0}, hours(1),
           "After SIGTERM the router is unready and serves on for so long, until load balancers "
           "before it have noticed.")
      .add("shutdown_grace", &TimeoutsConfig::shutdown_grace, Duration{0}, hours(24),
           "After that, running exchanges may take so long to finish.");

  SectionKeys<Config, LimitsConfig>(table, "limits.",
                                    [](Config& c) -> LimitsConfig& { return c.limits; })
      .add("head", &LimitsConfig::head, kKiB, 64 * kKiB,
           "Of one message head, with its start line; a request with a larger one gets 431, an "
           "answer with one is a bad answer.")
      .add("headers", &LimitsConfig::headers, 8, 128, "Header lines of one such head; likewise.")
      .add("request_body", &LimitsConfig::request_body, 1, 1024 * kGiB,
           "Larger request bodies get 413.", "no limit")
      .add("body_memory", &LimitsConfig::body_memory, kMiB, 1024 * kGiB,
           "All held request bodies together; beyond it, bodies stream through.")
      .add("held_answer", &LimitsConfig::held_answer, kKiB, 16 * kMiB,
           "Of an answer that may still be retried.")
      .add("longest_generation", &LimitsConfig::longest_generation, seconds(1), hours(24),
           "The longest answer you expect; `pointsman check` compares the time limits with it.",
           "not stated");

  SectionKeys<Config, RetryConfig>(table, "retry.",
                                   [](Config& c) -> RetryConfig& { return c.retry; })
      .add("tries", &RetryConfig::tries, 0, 10, "Further tries of one request.")
      .add("after_sent", &RetryConfig::after_sent, 0, 10,
           "Of these, after a connection was lost with the request sent.")
      .add("budget_share", &RetryConfig::budget_share, 0.0, 1.0,
           "Retries as a share of the requests of the window.")
      .add("budget_min", &RetryConfig::budget_min, 0, 1'000'000,
           "Retries that a window always allows.")
      .add("budget_window", &RetryConfig::budget_window, seconds(1), hours(1),
           "The window of the budget.")
      .add("stateless_paths", &RetryConfig::stateless_paths, kPaths, kPathRule, &is_path,
           "Where a request that was lost after it was sent may be sent again.");

  SectionKeys<Config, HealthConfig>(table, "health.",
                                    [](Config& c) -> HealthConfig& { return c.health; })
      .add("path", &HealthConfig::path, "path", "begins with /", &is_path,
           "Asked for on each replica; where it answers 404 or 405, /v1/models is.")
      .add("interval", &HealthConfig::interval, milliseconds(10), hours(1),
           "Between probes of a replica, with some jitter.")
      .add("timeout", &HealthConfig::timeout, milliseconds(10), minutes(10), "Of one probe.")
      .add("failures_out", &HealthConfig::failures_out, 1, 1000,
           "Failed probes in a row that make a replica not ready.")
      .add("successes_in", &HealthConfig::successes_in, 1, 1000,
           "Passed probes in a row that make it ready again.")
      .add("faults_out", &HealthConfig::faults_out, 1, 1000,
           "Connection faults of requests in a row that eject a replica.")
      .add("own_5xx_out", &HealthConfig::own_5xx_out, 1, 1000,
           "A replica's own 5xx in a row that eject it; 503 and 429 do not count.")
      .add("ejection", &HealthConfig::ejection, milliseconds(10), hours(1),
           "Length of a first ejection; each further one is longer.")
      .add("max_ejection", &HealthConfig::max_ejection, milliseconds(10), hours(24),
           "The longest ejection.")
      .add("usable_floor", &HealthConfig::usable_floor, 0.0, 1.0,
           "The share of a pool's replicas that ejections always leave.");

  SectionKeys<Config, SignalsConfig>(table, "signals.",
                                     [](Config& c) -> SignalsConfig& { return c.signals; })
      .add("interval", &SignalsConfig::interval, milliseconds(10), hours(1),
           "Between scrapes of a replica's metrics, with some jitter. A report older than three "
           "intervals counts as none.")
      .add("timeout", &SignalsConfig::timeout, milliseconds(10), minutes(10), "Of one scrape.")
      .add("max_body", &SignalsConfig::max_body, kKiB, 256 * kMiB,
           "Larger metrics pages are not read.");

  SectionKeys<Config, IndexConfig>(table, "index.",
                                   [](Config& c) -> IndexConfig& { return c.index; })
      .add("max_bytes", &IndexConfig::max_bytes, kMiB, 1024 * kGiB,
           "Memory of the prefix index; beyond it the least recently used blocks are forgotten.");

  SectionKeys<Config, ResponsesConfig>(table, "responses.",
                                       [](Config& c) -> ResponsesConfig& { return c.responses; })
      .add("capacity", &ResponsesConfig::capacity, 1, 100'000'000, "Ids remembered.")
      .add("max_age", &ResponsesConfig::max_age, seconds(1), hours(24 * 365),
           "How long an id is remembered.");

  SectionKeys<Config, PathsConfig>(table, "paths.",
                                   [](Config& c) -> PathsConfig& { return c.paths; })
      .add("proxied", &PathsConfig::proxied, kPaths, "each begins with /, or ends in /*", &is_path,
           "Passed on to replicas; everything else is a 404.")
      .add("refused", &PathsConfig::refused, kPaths, kPathRule, &is_path,
           "Exceptions to those: engines' admin paths. This program's own (/v1/signals, "
           "/v1/replicas, /v1/config) are never passed on.");

  SectionKeys<Config, AdminConfig>(table, "admin_access.",
                                   [](Config& c) -> AdminConfig& { return c.admin_access; })
      .add("key", &AdminConfig::key, "secret", kSecretRule, &is_secret,
           "Bearer key of the admin port; required where it listens off loopback.")
      .secret()
      .add("hosts", &AdminConfig::hosts, "list of names", "without a port", &is_header_name,
           "Names accepted in the Host header of the admin port besides IP addresses and "
           "localhost.");

  SectionKeys<Config, LogConfig>(table, "log.", [](Config& c) -> LogConfig& { return c.log; })
      .add("level", &LogConfig::level, "word", "debug | info | warning | error", &is_level,
           "The least important lines that go to standard error.")
      .add("access", &LogConfig::access, "place", "off | stdout | a path with a /", &is_log_place,
           "One JSON line per request.");
  return table;
}

std::vector<Key<ReplicaConfig>> make_replica_keys() {
  std::vector<Key<ReplicaConfig>> table;
  SectionKeys<ReplicaConfig, ReplicaConfig>(table, "",
                                            [](ReplicaConfig& c) -> ReplicaConfig& { return c; })
      .add("url", &ReplicaConfig::url, "URL", "http://host[:port][/prefix]", &any_text,
           "Where the replica listens; also its name in metrics, logs and on the admin port.")
      .add("weight", &ReplicaConfig::weight, 0.001, 1000.0, "Capacity relative to the others.")
      .add("kv_capacity_tokens", &ReplicaConfig::kv_capacity_tokens, 1, 4'000'000'000,
           "Size of its KV cache; what the replica reports goes before it.", "only as reported")
      .add("api_key", &ReplicaConfig::api_key, "secret", kSecretRule, &is_secret,
           "Bearer key for health probes and scrapes.")
      .secret()
      .add("api_key_upstream", &ReplicaConfig::api_key_upstream,
           "Also send the key with requests, in place of the client's.")
      .add("health_path", &ReplicaConfig::health_path, "path", "begins with /", &is_path_or_empty,
           "Instead of health.path.")
      .add("health_port", &ReplicaConfig::health_port, 1, 65'535, "Port of the health path.",
           "the URL's")
      .add("metrics_path", &ReplicaConfig::metrics_path, "path", "begins with /", &is_path,
           "Where the replica's metrics are.")
      .add("metrics_port", &ReplicaConfig::metrics_port, 1, 65'535, "Port of the metrics path.",
           "the URL's");
  return table;
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kSections = {{
    {"segregation", "From where a request belongs in a pool of its own."},
    {"saturation",
     "Where a replica counts as saturated: others are preferred, nothing is refused for it."},
    {"features", "What is read of a request."},
    {"models", "Model names."},
    {"timeouts", "Limits on silence. None is on the whole length of an answer."},
    {"limits", "Sizes and memory."},
    {"retry", "Tries on other replicas, only ever while nothing has gone to the client."},
    {"health", "Readiness probes, and ejection by what requests meet."},
    {"signals", "What replicas say of themselves on their metrics pages."},
    {"index", "The approximate index of which replica holds which prefix."},
    {"responses", "Which replica made which stored response, for requests that continue it."},
    {"paths", "What is passed on to replicas."},
    {"admin_access", "Who may use the admin port."},
    {"log", "What is written down."},
}};

std::string cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
    text.insert(at, "\\");
  }
  return text;
}

template <typename Owner>
void append_table(const std::vector<Key<Owner>>& keys, std::string_view section, std::string& out) {
  out += "| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n";
  const Owner defaults{};
  for (const Key<Owner>& key : keys) {
    const std::size_t point = key.path.find('.');
    const std::string_view own = point == std::string::npos
                                     ? std::string_view()
                                     : std::string_view(key.path).substr(0, point);
    if (own != section) continue;
    const std::string text = key.text(defaults);
    out += "| `" + key.path + "` | " + key.type + " | " +
           (text == "\"\"" ? "none" : "`" + cell(text) + "`") + " | " + cell(key.allowed) + " | " +
           cell(key.help) + " |\n";
  }
}

}  // namespace

const std::vector<Key<Config>>& config_keys() {
  static const std::vector<Key<Config>> keys = make_config_keys();
  return keys;
}

const std::vector<Key<ReplicaConfig>>& replica_keys() {
  static const std::vector<Key<ReplicaConfig>> keys = make_replica_keys();
  return keys;
}

std::string_view section_help(std::string_view section) {
  for (const auto& [name, help] : kSections) {
    if (name == section) return help;
  }
  return "";
}

std::string config_markdown() {
  std::string out = R"(<!-- Made by `pointsman check --markdown`; a test holds the two equal. -->
# Configuration

One YAML file, given with `-c`. Three lines are enough:

```yaml
replicas:
  - http://10.0.0.1:8000
  - http://10.0.0.2:8000
```

`pointsman check -c FILE` says what is wrong with a file, warns of what is doubtful, and shows every
value that is in effect and where it came from. Unknown keys, keys that come twice and values out of
range are errors with file and line.

Values:

* durations carry their unit: `250ms`, `5s`, `10m`, `2h`; a plain `0` is allowed;
* sizes are bytes, or carry their unit: `64KiB`, `16MiB`, `1GiB`;
* `${NAME}` anywhere in a value stands for an environment variable, which must be set. A key
  may stand in the file as it is, but is better kept in the environment.

## Top level

)";
  append_table(config_keys(), "", out);
  out +=
      R"(| `policy` | policy | `least_work` | a name, or a map | How replicas are chosen, see below. |
| `replicas` | list of replicas | none | | The replicas of one pool with purpose general; in place of `pools`, never beside it. |
| `pools` | list of pools | none | | Several pools, see below. |

## Replicas

An entry of `replicas` is a URL, or a map with these keys:

)";
  append_table(replica_keys(), "", out);
  out += R"(
## Pools

A pool holds replicas with the same purpose. One must be `general`, the others are optional; a
request whose own pool has no usable replica goes to the general one.

```yaml
pools:
  - name: general
    replicas: [http://10.0.0.1:8000, http://10.0.0.2:8000]
  - name: long
    purpose: long_context
    policy: {preset: least_kv}
    replicas: [{url: http://10.0.1.1:8000, weight: 2}]
```

| key | type | default | allowed | meaning |
|---|---|---|---|---|
| `name` | word | `general` | each once | In metrics and on the admin port. |
| `purpose` | word | `general` | general \| long_context \| long_generation; each once | Which requests it is for. |
| `policy` | policy | the one at the top | a name, or a map | How its replicas are chosen. |
| `replicas` | list of replicas | none | | |

## Policy

Either a preset with options, or stages spelled out. [policies.md](policies.md) has all presets,
stages and options.

```yaml
policy: least_kv                     # a preset as it is
```

```yaml
policy:
  preset: least_work
  choices: 2                         # any option of the preset
```

```yaml
policy:
  sampler: {type: sample, choices: 2} # a map with type and options, or the type alone
  scorers:
    - {type: kv_headroom, weight: 2}  # weight: of a normalised score in the sum
    - queue_room
```

| key | type | meaning |
|---|---|---|
| `preset` | word | A named policy. Every further key is one of its options. |
| `filters` | list of stages | Instead of a preset: what removes candidates, in this order. |
| `sampler` | stage | What bounds how many are compared. |
| `scorers` | list of stages | What they are compared by: normalised scores with weights, or one cost. |
| `picker` | stage | What makes an order of it. |
)";
  for (const auto& [section, help] : kSections) {
    out.append("\n## `").append(section).append("`\n\n").append(help).append("\n\n");
    append_table(config_keys(), section, out);
    if (section == "signals") {
      out +=
          "| `signals.names` | map | none | signal: name or name{label=\"value\"} | Names of your "
          "own, tried before the known engines'. |\n";
    }
  }
  return out;
}

}  // namespace pointsman
