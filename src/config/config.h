#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "core/registry.h"

namespace pointsman {

// The whole configuration as plain values; every default is a member initialiser, so that a
// default-constructed Config is a valid one without replicas. The keys of the file, their ranges
// and their help are in config/schema.cc; docs/config.md is made from that table.
//
// Nothing here opens, resolves or listens: addresses and URLs are text, which the program turns
// into what its parts take (apps/pointsman/serve_command.cc).

// One engine process.
struct ReplicaConfig {
  std::string url;                       // http://host[:port][/prefix], or https://…
  double weight = 1.0;                   // capacity relative to the others, > 0
  std::uint32_t kv_capacity_tokens = 0;  // size of its KV cache; 0: as it reports
  std::string api_key;                   // secret; empty: none. For probes and scrapes
  bool api_key_upstream = false;         // also sent with requests, in place of the client's
  std::string health_path;               // empty: health.path
  std::uint16_t health_port = 0;         // 0: the port of the URL
  std::string metrics_path = "/metrics";
  std::uint16_t metrics_port = 0;    // 0: the port of the URL
  std::uint16_t kv_events_port = 0;  // 0: kv_events.endpoint_port
  std::uint16_t kv_replay_port = 0;  // 0: kv_events.replay_port
  std::string kv_topic;              // empty: its address is in the topic
  std::string tls_name;              // that its certificate must have; empty: the URL's host
  std::string tls_ca;                // these three: empty: as in replica_tls
  std::string tls_certificate;
  std::string tls_key;
  bool tls_insecure = false;  // nothing is verified
};

// Replicas with the same purpose, under one policy.
struct PoolConfig {
  std::string name = "general";
  std::string purpose = "general";   // general | long_context | long_generation
  std::optional<PolicySpec> policy;  // absent: the policy at the top
  std::vector<ReplicaConfig> replicas;
};

struct SegregationConfig {
  std::uint32_t long_context_tokens = 32'000;    // prompt tokens, more than
  std::uint32_t long_generation_tokens = 4'000;  // the client's output limit, more than
};

struct SaturationConfig {
  double kv = 0.9;                 // live KV use, [0, 1]
  double queue = 16;               // live queue, requests
  double prefill_tokens = 32'768;  // outstanding prefill
};

// What is read of a request.
struct FeaturesConfig {
  std::size_t max_body = std::size_t{16} << 20;     // bodies up to here are held and read whole
  std::uint32_t block_bytes = 64;                   // text of one prefix block
  std::uint32_t block_ids = 16;                     // token ids of one prefix block
  double bytes_per_token = 4;                       // for estimates, until learnt
  std::size_t token_cache = std::size_t{64} << 20;  // ids of prompts' pieces
  // Looked at in this order for the session key.
  std::vector<std::string> session_headers = {"x-session-id", "x-claude-code-session-id",
                                              "x-session-affinity", "session-id", "session_id"};
};

// A model whose prompts become token ids.
struct TokenizerConfig {
  std::vector<std::string> models;    // served names of the base model; the first is canonical
  std::vector<std::string> adapters;  // served names of its LoRA adapters
  std::string path;                   // a model's folder, or a tokenizer.json
  std::size_t max_prompt_bytes = std::size_t{1} << 20;  // longer prompts stay text
};

struct ModelsConfig {
  bool forward_unknown = false;  // a model that no replica names: forwarded, else 404
};

// Limits on silence; none on total time.
struct TimeoutsConfig {
  Duration connect = std::chrono::seconds(5);             // to a replica
  Duration first_byte_stream = std::chrono::minutes(10);  // of a streamed answer
  Duration first_byte_plain = std::chrono::minutes(60);   // of a plain answer: its whole making
  Duration gap = std::chrono::minutes(5);                 // between bytes of an answer
  Duration head_hold = std::chrono::seconds(60);          // a stream's head waits for its body
  Duration upstream_idle = std::chrono::seconds(3);       // unused connections to replicas
  Duration upstream_unacknowledged = std::chrono::seconds(30);  // TCP_USER_TIMEOUT
  Duration client_head = std::chrono::seconds(10);              // a request's head
  Duration client_body_gap = std::chrono::seconds(60);          // between bytes of a request's body
  Duration client_idle = std::chrono::seconds(75);              // between requests
  Duration client_stall = std::chrono::minutes(5);              // a client that takes no byte
  Duration shutdown_delay{0};                                   // serve on after SIGTERM, unready
  Duration shutdown_grace = std::chrono::minutes(10);           // running exchanges may finish
};

struct LimitsConfig {
  std::size_t head = std::size_t{64} << 10;           // of a request or an answer
  std::uint32_t headers = 256;                        // lines of such a head
  std::size_t request_body = std::size_t{512} << 20;  // larger ones are refused; 0: none is
  std::size_t body_rate = 500;                        // bytes per second; 0: no limit
  std::uint32_t connections = 16'384;                 // of clients; 0: as descriptors allow
  std::uint32_t connections_per_client = 0;           // of one address; 0: no limit
  std::uint32_t requests_per_connection = 100'000;    // then it is closed; 0: no limit
  std::size_t body_memory = std::size_t{1} << 30;     // all held request bodies together
  std::size_t held_answer = std::size_t{64} << 10;    // of an answer that may be retried
  Duration longest_generation{0};  // longest answer expected; `check` compares limits with it
};

struct RetryConfig {
  std::uint32_t tries = 2;        // further tries of one request
  std::uint32_t after_sent = 1;   // of those, after a connection was lost with the request sent
  double budget_share = 0.2;      // retries per request of the window
  std::uint32_t budget_min = 10;  // retries always allowed in a window
  Duration budget_window = std::chrono::seconds(10);
  // Paths where a request lost after it was sent may be tried again.
  std::vector<std::string> stateless_paths = {
      "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages",
      "/v1/rerank",           "/v1/score",       "/v1/classify",   "/v1/pooling",   "/rerank",
      "/v2/rerank",           "/score",          "/classify",      "/pooling",      "/tokenize",
      "/detokenize"};
};

struct HealthConfig {
  std::string path = "/health";
  Duration interval = std::chrono::seconds(1);
  Duration timeout = std::chrono::seconds(5);
  std::uint32_t failures_out = 3;
  std::uint32_t successes_in = 1;
  std::uint32_t faults_out = 3;
  std::uint32_t own_5xx_out = 5;
  Duration ejection = std::chrono::seconds(10);
  Duration max_ejection = std::chrono::seconds(300);
  double usable_floor = 0.5;
};

// A metric name of one's own, for one signal.
struct MetricName {
  std::string signal;    // kv_usage, running, waiting, queued_tokens, prefix_hit_rate, …
  std::string selector;  // name{label="value",…}
};

struct SignalsConfig {
  Duration interval = std::chrono::seconds(1);  // between scrapes of a replica
  Duration timeout = std::chrono::seconds(1);
  std::size_t max_body = std::size_t{4} << 20;
  std::vector<MetricName> names;
};

struct IndexConfig {
  std::size_t max_bytes = std::size_t{256} << 20;
  std::size_t engine_max_bytes = std::size_t{256} << 20;  // of what engines say that they hold
};

// The engines' own word on what their caches hold.
struct KvEventsConfig {
  std::uint16_t endpoint_port = 0;  // connect to this port of each replica's host; 0: do not
  std::string bind;                 // ZeroMQ endpoint where engines connect; empty: none
  std::uint16_t replay_port = 0;    // on each replica's host; 0: none
  std::string topic;                // only topics that begin so
  std::uint16_t ranks = 1;          // data-parallel ranks of each replica
  Duration replay_timeout = std::chrono::seconds(5);
  std::size_t table_max_bytes = std::size_t{512} << 20;
};

// Which replica holds which stored response.
struct ResponsesConfig {
  std::uint32_t capacity = 100'000;
  Duration max_age = std::chrono::hours(1);
};

struct PathsConfig {
  // What is passed on to replicas. An entry that ends in "/*" stands for everything below it.
  std::vector<std::string> proxied = {"/v1/*",     "/rerank",     "/v2/rerank",  "/score",
                                      "/classify", "/pooling",    "/tokenize",   "/detokenize",
                                      "/generate", "/completion", "/invocations"};
  // Exceptions to those.
  std::vector<std::string> refused = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"};
};

// TLS on the data port.
struct ListenTlsConfig {
  std::string certificate;          // PEM file, with its chain; empty: the port speaks plain HTTP
  std::string key;                  // PEM file; empty: in the certificate's
  std::string client_ca;            // PEM file; empty: clients need no certificate
  std::string min_version = "1.2";  // 1.2 | 1.3
};

// TLS towards all replicas whose URL begins with https.
struct ReplicaTlsConfig {
  std::string ca;           // PEM file; empty: the system's
  std::string certificate;  // PEM file, with its chain; empty: none is shown
  std::string key;          // PEM file; empty: in the certificate's
  bool insecure = false;    // nothing is verified
};

// Who may use the data port, and how much of it.
struct AccessConfig {
  std::string key_file = "off";      // "off": no key is asked for
  std::uint32_t concurrent = 0;      // requests of one key at a time; 0: no limit
  bool pass_keys = false;            // the client's key goes on to replicas
  std::vector<std::string> trusted;  // networks whose steering headers count
};

struct AdminConfig {
  std::string key;                 // secret; empty: none, allowed on loopback only
  std::vector<std::string> hosts;  // Host names accepted besides addresses and localhost
};

struct LogConfig {
  std::string level = "info";  // debug | info | warning | error
  std::string access = "off";  // off | stdout | a file's path
};

// What the router knew of each request, what it chose, and what came of it.
struct DecisionLogConfig {
  std::string path = "off";                        // off | a file's path
  double sample = 1;                               // share of the sessions
  std::size_t max_bytes = std::size_t{128} << 20;  // of one file
  std::uint32_t keep = 4;                          // older files
  std::string key;                                 // secret; empty: another at each start
};

struct Config {
  std::string listen = "0.0.0.0:8080";   // data port; port 0: any
  std::string admin = "127.0.0.1:9090";  // "off": none
  std::string observe = "off";           // read-only metrics and health; "off": none
  std::uint32_t threads = 0;             // data threads; 0: one per core
  std::uint64_t seed = 0;                // of chance in decisions; 0: another one at each start
  PolicySpec policy = {.preset = "least_work",
                       .options = {},
                       .filters = {},
                       .sampler = {},
                       .scorers = {},
                       .picker = {}};
  std::vector<PoolConfig> pools;
  SegregationConfig segregation;
  SaturationConfig saturation;
  FeaturesConfig features;
  std::vector<TokenizerConfig> tokenizers;
  ModelsConfig models;
  TimeoutsConfig timeouts;
  LimitsConfig limits;
  RetryConfig retry;
  HealthConfig health;
  SignalsConfig signals;
  IndexConfig index;
  KvEventsConfig kv_events;
  ResponsesConfig responses;
  PathsConfig paths;
  ListenTlsConfig listen_tls;
  ReplicaTlsConfig replica_tls;
  AccessConfig access;
  AdminConfig admin_access;
  LogConfig log;
  DecisionLogConfig decision_log;
};

}  // namespace pointsman
