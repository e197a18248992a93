#include "serve_options.h"

#include <algorithm>
#include <utility>

#include "features/chat_request.h"
#include "features/loaded_prompt_model.h"
#include "http/url.h"

namespace pointsman {

std::uint32_t text_block_tokens(const Config& config) {
  return FeatureOptions{.block_bytes = config.features.block_bytes,
                        .bytes_per_token = config.features.bytes_per_token}
      .block_tokens();
}

Router::Options router_options(const Config& config, std::uint64_t seed) {
  Router::Options options;
  options.segregation.long_context_tokens = config.segregation.long_context_tokens;
  options.segregation.long_generation_tokens = config.segregation.long_generation_tokens;
  options.saturation.kv = config.saturation.kv;
  options.saturation.queue = config.saturation.queue;
  options.saturation.prefill_tokens = config.saturation.prefill_tokens;
  options.index.max_bytes = config.index.max_bytes;
  options.index.seed = seed;
  options.engine_caches.max_bytes = config.index.engine_max_bytes;
  options.engine_caches.seed = seed;
  options.pins.capacity = config.responses.capacity;
  options.pins.max_age = config.responses.max_age;
  options.block_tokens = text_block_tokens(config);
  options.seed = seed;
  return options;
}

HealthOptions health_options(const Config& config) {
  HealthOptions options;
  options.failures_out = static_cast<int>(config.health.failures_out);
  options.successes_in = static_cast<int>(config.health.successes_in);
  options.faults_out = static_cast<int>(config.health.faults_out);
  options.own_5xx_out = static_cast<int>(config.health.own_5xx_out);
  options.ejection = config.health.ejection;
  options.max_ejection = config.health.max_ejection;
  options.usable_floor = config.health.usable_floor;
  return options;
}

Feeds::Options feeds_options(const Config& config, std::uint64_t seed) {
  Feeds::Options options;
  options.health.interval = config.health.interval;
  options.health.timeout = config.health.timeout;
  options.health.seed = seed;
  options.signals.interval = config.signals.interval;
  options.signals.timeout = config.signals.timeout;
  options.signals.max_body = config.signals.max_body;
  options.signals.seed = seed + 1;
  for (const MetricName& name : config.signals.names) {
    if (const std::optional<EngineSignal> signal = engine_signal(name.signal)) {
      options.signals.own_metrics.push_back({*signal, name.selector});
    }
  }
  return options;
}

std::uint64_t chain_secret(std::uint64_t seed) {
  return seed ^ 0x746f6b656e73;
}

std::optional<KvEventFeed::Options> kv_event_options(const Config& config, std::uint64_t seed) {
  const KvEventsConfig& events = config.kv_events;
  bool any = events.endpoint_port != 0 || !events.bind.empty();
  for (const PoolConfig& pool : config.pools) {
    for (const ReplicaConfig& replica : pool.replicas) any = any || replica.kv_events_port != 0;
  }
  if (!any) return std::nullopt;
  KvEventFeed::Options options;
  options.port = events.endpoint_port;
  options.bind = events.bind;
  options.replay_port = events.replay_port;
  options.topic = events.topic;
  options.ranks = events.ranks;
  options.replay_timeout = events.replay_timeout;
  options.table_max_bytes = events.table_max_bytes;
  options.block_tokens = config.features.block_ids;
  options.seed = seed + 2;
  options.canonical_model = [tokenizers = config.tokenizers](std::string_view name) {
    for (const TokenizerConfig& tokenizer : tokenizers) {
      const auto& models = tokenizer.models;
      if (std::find(models.begin(), models.end(), name) != models.end()) return models.front();
    }
    return std::string();
  };
  return options;
}

Result<std::unique_ptr<PromptModels>> prompt_models(const LoadedConfig& loaded, std::uint64_t seed,
                                                    std::vector<std::string>& warnings) {
  const Config& config = loaded.config;
  if (config.tokenizers.empty()) return std::unique_ptr<PromptModels>();
  std::vector<PromptModels::Entry> entries;
  std::string faults;
  for (std::size_t i = 0; i < config.tokenizers.size(); ++i) {
    const TokenizerConfig& tokenizer = config.tokenizers[i];
    const std::string key = "tokenizers[" + std::to_string(i) + "].path";
    std::string problem;
    Result<std::unique_ptr<const PromptModel>> model =
        LoadedPromptModel::load(tokenizer.path, problem);
    if (!model) {
      const auto origin = loaded.origins.find(key);
      if (!faults.empty()) faults += '\n';
      if (origin != loaded.origins.end()) faults += origin->second + ": ";
      faults.append(key).append(": '").append(tokenizer.path).append("' cannot be used: ");
      faults += model.error().message;
      if (token_ids_built()) {
        faults += " (allowed: a model's folder with a tokenizer.json, or a tokenizer.json)";
      }
      continue;
    }
    if (!problem.empty()) {
      std::string warning = key + ": chats of ";
      warning.append(tokenizer.models.front()).append(" stay text: ").append(problem);
      warnings.push_back(std::move(warning));
    }
    entries.push_back({.names = tokenizer.models,
                       .adapters = tokenizer.adapters,
                       .max_prompt_bytes = tokenizer.max_prompt_bytes,
                       .model = std::move(*model)});
  }
  if (!faults.empty()) return Error{ErrorKind::kClient, std::move(faults)};
  return std::make_unique<PromptModels>(std::move(entries), config.features.token_cache,
                                        chain_secret(seed));
}

ProxyOptions proxy_options(const Config& config, std::uint64_t seed) {
  ProxyOptions options;
  ProxyTimeouts& timeouts = options.timeouts;
  timeouts.connect = config.timeouts.connect;
  timeouts.first_byte_stream = config.timeouts.first_byte_stream;
  timeouts.first_byte_plain = config.timeouts.first_byte_plain;
  timeouts.gap = config.timeouts.gap;
  timeouts.head_hold = config.timeouts.head_hold;
  timeouts.upstream_idle = config.timeouts.upstream_idle;
  timeouts.upstream_unacknowledged = config.timeouts.upstream_unacknowledged;
  timeouts.client_head = config.timeouts.client_head;
  timeouts.client_body_gap = config.timeouts.client_body_gap;
  timeouts.client_idle = config.timeouts.client_idle;
  timeouts.client_stall = config.timeouts.client_stall;
  timeouts.shutdown_delay = config.timeouts.shutdown_delay;
  timeouts.shutdown_grace = config.timeouts.shutdown_grace;
  options.limits.head.max_size = config.limits.head;
  options.limits.head.max_headers = config.limits.headers;
  options.limits.request_body = config.limits.request_body;
  options.limits.max_body = config.features.max_body;
  options.limits.body_rate = config.limits.body_rate;
  options.limits.body_memory = config.limits.body_memory;
  options.limits.held_answer = config.limits.held_answer;
  options.limits.connections = config.limits.connections;
  options.limits.connections_per_client = config.limits.connections_per_client;
  options.limits.requests_per_connection = config.limits.requests_per_connection;
  options.trusted = config.access.trusted;
  options.pass_keys = config.access.pass_keys;
  options.retry.tries = config.retry.tries;
  options.retry.after_sent = config.retry.after_sent;
  options.retry.budget_share = config.retry.budget_share;
  options.retry.budget_min = config.retry.budget_min;
  options.retry.budget_window = config.retry.budget_window;
  options.proxied_paths = config.paths.proxied;
  options.refused_paths = config.paths.refused;
  options.stateless_paths = config.retry.stateless_paths;
  options.forward_unknown_model = config.models.forward_unknown;
  options.block_bytes = config.features.block_bytes;
  options.block_ids = config.features.block_ids;
  options.bytes_per_token = config.features.bytes_per_token;
  options.chain_secret = chain_secret(seed);
  options.session_headers = config.features.session_headers;
  return options;
}

Result<std::unique_ptr<TlsServer>> tls_server(const Config& config) {
  const ListenTlsConfig& tls = config.listen_tls;
  if (tls.certificate.empty()) return std::unique_ptr<TlsServer>();
  TlsServer::Options options;
  options.files = {.certificate = tls.certificate, .key = tls.key, .ca = tls.client_ca};
  options.only_13 = tls.min_version == "1.3";
  Result<std::unique_ptr<TlsServer>> server = TlsServer::load(std::move(options));
  if (server) return server;
  const std::string& message = server.error().message;
  return Error{server.error().kind,
               (message.starts_with("ca:") ? "listen_tls.client_" : "listen_tls.") + message};
}

PoolPurpose pool_purpose(const std::string& word) {
  if (word == "long_context") return PoolPurpose::kLongContext;
  if (word == "long_generation") return PoolPurpose::kLongGeneration;
  return PoolPurpose::kGeneral;
}

namespace {

// Errors begin with the key at fault: "tls_ca", "replica_tls.ca", ….
Result<std::shared_ptr<TlsClient>> tls_client(const ReplicaConfig& replica, const Config& config,
                                              TlsClients& known) {
  const ReplicaTlsConfig& all = config.replica_tls;
  const bool own_certificate = !replica.tls_certificate.empty();
  if (!own_certificate && !replica.tls_key.empty()) {
    return Error{ErrorKind::kClient, "tls_key: is of no use without tls_certificate"};
  }
  TlsClient::Options options;
  options.files = {.certificate = own_certificate ? replica.tls_certificate : all.certificate,
                   .key = own_certificate ? replica.tls_key : all.key,
                   .ca = replica.tls_ca.empty() ? all.ca : replica.tls_ca};
  options.insecure = replica.tls_insecure || all.insecure;
  Result<std::shared_ptr<TlsClient>> client = known.get(options);
  if (client) return client;
  const std::string& message = client.error().message;
  const bool own = message.starts_with("ca:") ? !replica.tls_ca.empty() : own_certificate;
  return Error{client.error().kind, (own ? "tls_" : "replica_tls.") + message};
}

}  // namespace

Result<ReplicaSpec> replica_spec(const ReplicaConfig& replica, const std::string& pool,
                                 const Config& config, TlsClients& tls) {
  Result<ReplicaUrl> url = parse_replica_url(replica.url);
  if (!url) return url.error();
  ReplicaSpec spec;
  spec.url = replica.url;
  spec.host = std::move(url->host);
  spec.port = url->port;
  spec.authority = std::move(url->authority);
  spec.path_prefix = std::move(url->path_prefix);
  if (url->https) {
    Result<std::shared_ptr<TlsClient>> client = tls_client(replica, config, tls);
    if (!client) return client.error();
    spec.tls = std::move(*client);
    spec.tls_name = replica.tls_name.empty() ? spec.host : replica.tls_name;
  } else if (!(replica.tls_name + replica.tls_ca + replica.tls_certificate + replica.tls_key)
                  .empty() ||
             replica.tls_insecure) {
    return Error{ErrorKind::kClient, "the tls_ keys are for https:// URLs"};
  }
  spec.weight = replica.weight;
  spec.kv_capacity_tokens = replica.kv_capacity_tokens;
  spec.pool = pool;
  spec.api_key = replica.api_key;
  spec.api_key_upstream = replica.api_key_upstream;
  spec.health_path = replica.health_path.empty() ? config.health.path : replica.health_path;
  spec.health_port = replica.health_port;
  spec.metrics_path = replica.metrics_path;
  spec.metrics_port = replica.metrics_port;
  spec.kv_events_port = replica.kv_events_port;
  spec.kv_replay_port = replica.kv_replay_port;
  spec.kv_topic = replica.kv_topic;
  return spec;
}

}  // namespace pointsman
