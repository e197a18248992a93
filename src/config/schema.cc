#include "config/schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "access/address_range.h"
#include "config/kv_events_check.h"
#include "config/section_keys.h"
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

using schema_detail::scalar;
using schema_detail::wrong;

bool any_text(const std::string&) {
  return true;
}
bool is_name(const std::string& text) {
  return !text.empty();
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
bool is_network(const std::string& text) {
  return AddressRange::parse(text).has_value();
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
bool is_file_or_off(const std::string& text) {
  return text == "off" || text.find_first_of("./") != std::string::npos;
}
bool is_tls_version(const std::string& text) {
  return text == "1.2" || text == "1.3";
}
bool is_log_place(const std::string& text) {
  return text == "off" || text == "stdout" || text.find_first_of("./") != std::string::npos;
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
      .add("block_ids", &FeaturesConfig::block_ids, 1, 4096,
           "Token ids in one block of the prefix index, where prompts are or become token ids.")
      .add("bytes_per_token", &FeaturesConfig::bytes_per_token, 0.5, 64.0,
           "For estimating tokens from text, until a model's answers have taught better.")
      .add("token_cache", &FeaturesConfig::token_cache, kMiB, 64 * kGiB,
           "Token ids of prompts' pieces that are kept, so that a conversation's next turn costs "
           "only "
           "what is new in it.")
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
      .add("headers", &LimitsConfig::headers, 8, 1024, "Header lines of one such head; likewise.")
      .add("request_body", &LimitsConfig::request_body, 1, 1024 * kGiB,
           "Larger request bodies get 413.", "no limit")
      .add("body_rate", &LimitsConfig::body_rate, 1, kGiB,
           "Bytes a second that a request's body must bring, averaged over "
           "timeouts.client_body_gap; a slower one gets 408.",
           "no limit")
      .add("connections", &LimitsConfig::connections, 1, 1'000'000,
           "Of clients to the data port; further ones get 503. Beyond three quarters of the "
           "descriptors new ones wait in any case.",
           "as descriptors allow")
      .add("connections_per_client", &LimitsConfig::connections_per_client, 1, 1'000'000,
           "Of one client address (IPv6: one /64), those of access.trusted aside; further ones get "
           "503. Without access.trusted, a proxy before the router is one client.",
           "no limit")
      .add("requests_per_connection", &LimitsConfig::requests_per_connection, 1, 1'000'000'000,
           "Its last answer says that the connection closes.", "no limit")
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
           "Memory of the prefix index; beyond it the least recently used blocks are forgotten.")
      .add(
          "engine_max_bytes", &IndexConfig::engine_max_bytes, kMiB, 1024 * kGiB,
          "Memory of what engines say that they hold (kv_events); beyond it, replicas fall back to "
          "the approximate index.");

  SectionKeys<Config, KvEventsConfig>(table, "kv_events.",
                                      [](Config& c) -> KvEventsConfig& { return c.kv_events; })
      .add("endpoint_port", &KvEventsConfig::endpoint_port, 1, 65'535,
           "Port of each replica's host where its engine publishes its cache events.", "none")
      .add("bind", &KvEventsConfig::bind, "ZeroMQ endpoint",
           "tcp://ADDRESS:PORT, an IP address, localhost or * and a port from 1 to 65535; or "
           "ipc://PATH",
           &is_zmq_listen_endpoint,
           "Listen here for engines that connect to publish their events. The topic says whose "
           "they are.")
      .add("replay_port", &KvEventsConfig::replay_port, 1, 65'535,
           "Port of each replica's host where missed events can be asked for.", "none")
      .add("topic", &KvEventsConfig::topic, "text", "", &any_text,
           "Only events whose topic begins so.")
      .add("ranks", &KvEventsConfig::ranks, 1, 256,
           "Data-parallel ranks of each replica; rank r publishes r ports above the first one.")
      .add("replay_timeout", &KvEventsConfig::replay_timeout, milliseconds(10), minutes(10),
           "What has not come within so long after it was asked for is given up.")
      .add("table_max_bytes", &KvEventsConfig::table_max_bytes, kMiB, 1024 * kGiB,
           "Memory for the engines' own names of their blocks, about 30 bytes a block.");

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

  SectionKeys<Config, ListenTlsConfig>(table, "listen_tls.",
                                       [](Config& c) -> ListenTlsConfig& { return c.listen_tls; })
      .add("certificate", &ListenTlsConfig::certificate, "file", "PEM", &any_text,
           "The certificate, with those that lead to its root behind it. With it, `listen` speaks "
           "TLS and nothing else.")
      .add("key", &ListenTlsConfig::key, "file", "PEM, without a passphrase", &any_text,
           "The certificate's key. Empty: it is in the same file.")
      .add("client_ca", &ListenTlsConfig::client_ca, "file", "PEM", &any_text,
           "Clients must show a certificate that one of these has signed (mTLS). Empty: they need "
           "none.")
      .add("min_version", &ListenTlsConfig::min_version, "word", "1.2 | 1.3", &is_tls_version,
           "The oldest version of TLS that is spoken.");

  SectionKeys<Config, ReplicaTlsConfig>(
      table, "replica_tls.", [](Config& c) -> ReplicaTlsConfig& { return c.replica_tls; })
      .add("ca", &ReplicaTlsConfig::ca, "file", "PEM", &any_text,
           "Replicas' certificates must be signed by one of these. Empty: by one that the system "
           "trusts.")
      .add("certificate", &ReplicaTlsConfig::certificate, "file", "PEM", &any_text,
           "The certificate that is shown to replicas that ask for one (mTLS), with those that "
           "lead to its root behind it. Empty: none.")
      .add("key", &ReplicaTlsConfig::key, "file", "PEM, without a passphrase", &any_text,
           "That certificate's key. Empty: it is in the same file.")
      .add("insecure", &ReplicaTlsConfig::insecure,
           "Believe any certificate: whoever gets between can read and change everything.");

  SectionKeys<Config, AccessConfig>(table, "access.",
                                    [](Config& c) -> AccessConfig& { return c.access; })
      .add("key_file", &AccessConfig::key_file, "place", "off | a path with a . or a /",
           &is_file_or_off,
           "Hashes of the keys of which a client must show one; `pointsman key` makes them. Read "
           "again when the file changes, and on SIGHUP.")
      .add("concurrent", &AccessConfig::concurrent, 1, 1'000'000,
           "Requests of one key at a time, unless its line in the file says otherwise; further "
           "ones get 429.",
           "no limit")
      .add("pass_keys", &AccessConfig::pass_keys,
           "Send the client's key on to replicas. Else Authorization and x-api-key end here where "
           "there is a key_file.")
      .add(
          "trusted", &AccessConfig::trusted, "list of networks",
          "each as 10.0.0.0/8, fd00::/8 or an address", &is_network,
          "Clients whose headers that steer routers (x-pointsman-*, x-gateway-destination-endpoint "
          "and others, see security.md) are passed on; all others' are removed.");

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
      .add("access", &LogConfig::access, "place", "off | stdout | a path with a . or a /",
           &is_log_place, "One JSON line per request.");

  SectionKeys<Config, DecisionLogConfig>(
      table, "decision_log.", [](Config& c) -> DecisionLogConfig& { return c.decision_log; })
      .add("path", &DecisionLogConfig::path, "place", "off | a path with a . or a /",
           &is_file_or_off,
           "One JSON line per request that a replica was chosen for (docs/decision_log.md). A file "
           "of an earlier start is moved to PATH.1.")
      .add("sample", &DecisionLogConfig::sample, 1e-6, 1.0,
           "Share of the sessions that are written down, each of them whole; of requests without "
           "a session, of the requests.")
      .add("max_bytes", &DecisionLogConfig::max_bytes, 64 * kKiB, 1024 * kGiB,
           "Of one file; when it is full it becomes PATH.1, that before PATH.2, and so on.")
      .add("keep", &DecisionLogConfig::keep, 0, 10'000, "So many of these older files are kept.")
      .add("key", &DecisionLogConfig::key, "secret", kSecretRule, &is_secret,
           "Makes the hashes in the log opaque. Give several routers the same if their logs are to "
           "be compared. Empty: another one at each start.")
      .secret();
  return table;
}

std::vector<Key<ReplicaConfig>> make_replica_keys() {
  std::vector<Key<ReplicaConfig>> table;
  SectionKeys<ReplicaConfig, ReplicaConfig>(table, "",
                                            [](ReplicaConfig& c) -> ReplicaConfig& { return c; })
      .add("url", &ReplicaConfig::url, "URL", "http://host[:port][/prefix], or https://…",
           &any_text,
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
           "the URL's")
      .add("kv_events_port", &ReplicaConfig::kv_events_port, 1, 65'535,
           "Where its engine publishes its cache events.", "kv_events.endpoint_port")
      .add("kv_replay_port", &ReplicaConfig::kv_replay_port, 1, 65'535,
           "Where its missed cache events can be asked for.", "kv_events.replay_port")
      .add(
          "kv_topic", &ReplicaConfig::kv_topic, "text", "", &any_text,
          "The topic of its cache events, where engines connect to kv_events.bind. Without it, the "
          "topic must name its address: kv@HOST:PORT@MODEL.")
      .add("tls_name", &ReplicaConfig::tls_name, "name or address", "", &any_text,
           "What its certificate must have been made for, and what it is asked for (SNI). Empty: "
           "the URL's host.")
      .add("tls_ca", &ReplicaConfig::tls_ca, "file", "PEM", &any_text, "Instead of replica_tls.ca.")
      .add("tls_certificate", &ReplicaConfig::tls_certificate, "file", "PEM", &any_text,
           "Instead of replica_tls.certificate.")
      .add("tls_key", &ReplicaConfig::tls_key, "file", "PEM, without a passphrase", &any_text,
           "That certificate's key.")
      .add("tls_insecure", &ReplicaConfig::tls_insecure,
           "Like replica_tls.insecure, for it alone.");
  return table;
}

std::vector<Key<TokenizerConfig>> make_tokenizer_keys() {
  std::vector<Key<TokenizerConfig>> table;
  SectionKeys<TokenizerConfig, TokenizerConfig>(
      table, "", [](TokenizerConfig& c) -> TokenizerConfig& { return c; })
      .add("models", &TokenizerConfig::models, "list of model names", "at least one", &is_name,
           "Names under which the base model is served; the first one stands for all of them.")
      .add("adapters", &TokenizerConfig::adapters, "list of model names", "", &is_name,
           "Names under which LoRA adapters of it are served.")
      .add("path", &TokenizerConfig::path, "path", "must be given", &any_text,
           "The model's folder, with tokenizer.json and its chat template, or a tokenizer.json.")
      .add("max_prompt_bytes", &TokenizerConfig::max_prompt_bytes, kKiB, kGiB,
           "Longer prompts are known by their text alone.");
  return table;
}

constexpr std::array<Section, 19> kSections = {{
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
    {"kv_events",
     "The engines' own word on what their caches hold, see [kv_events.md](kv_events.md)."},
    {"responses", "Which replica made which stored response, for requests that continue it."},
    {"paths", "What is passed on to replicas."},
    {"listen_tls", "TLS on the data port, see [tls.md](tls.md)."},
    {"replica_tls",
     "TLS to replicas whose URL begins with https, see [tls.md](tls.md). A replica may have its "
     "own instead."},
    {"access", "Who may use the data port, see [security.md](security.md)."},
    {"admin_access", "Who may use the admin port."},
    {"log", "What is written down."},
    {"decision_log",
     "What was known of each request, what was chosen and what came of it, for `pointsman "
     "simulate`. "
     "Never a prompt's text."},
}};

}  // namespace

const std::vector<Key<Config>>& config_keys() {
  static const std::vector<Key<Config>> keys = make_config_keys();
  return keys;
}

const std::vector<Key<ReplicaConfig>>& replica_keys() {
  static const std::vector<Key<ReplicaConfig>> keys = make_replica_keys();
  return keys;
}

const std::vector<Key<TokenizerConfig>>& tokenizer_keys() {
  static const std::vector<Key<TokenizerConfig>> keys = make_tokenizer_keys();
  return keys;
}

std::span<const Section> config_sections() {
  return kSections;
}

}  // namespace pointsman
