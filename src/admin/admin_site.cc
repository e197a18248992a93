#include "admin/admin_site.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "admin/access_rules.h"
#include "admin/json_tree.h"
#include "admin/replica_figures.h"
#include "base/ascii.h"
#include "base/decimal.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "feeds/pushed_signals.h"
#include "http/openai_error.h"
#include "http/url.h"

namespace pointsman {
namespace {

using Reply = AdminSite::Reply;

constexpr std::string_view kJson = "application/json";
constexpr std::string_view kText = "text/plain; charset=utf-8";

Reply json_reply(int status, std::string body) {
  body += '\n';
  return {status, kJson, std::move(body), {}};
}

Reply error_reply(int status, std::string_view kind, const std::string& message) {
  OwnError error;
  error.status = status;
  error.type = status == 401 ? "authentication_error" : "invalid_request_error";
  error.kind = kind;
  error.message = message;
  Reply reply{status, kJson, {}, {}};
  append_error_body(error, reply.body);
  return reply;
}

Reply wrong_method(const char* allowed) {
  Reply reply = error_reply(405, "method", std::string("allowed here: ") + allowed);
  reply.headers.emplace_back("Allow", allowed);
  return reply;
}

Reply not_found(std::string_view path) {
  return error_reply(404, "not_found",
                     "there is nothing at " + std::string(path.substr(0, 200)) +
                         "; see docs/admin.md for what there is");
}

bool reads(const HttpRequest& request) {
  return request.method == "GET" || request.method == "HEAD";
}

// Percent-decoding; nothing where an escape is broken.
std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_value(text[i + 1]);
    const int low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

// For the log: a change, and who asked for it.
void note(const HttpRequest& request, const std::string& url, const std::string& change) {
  log_info("replica " + url + " " + change + " by the admin port (client " +
           request.client.address().to_string() + ")");
}

std::string_view state_word(const ReplicaStatus& status) {
  switch (status.health.phase) {
    case HealthState::Phase::kUnknown:
      return "unknown";
    case HealthState::Phase::kReady:
      return "ready";
    case HealthState::Phase::kNotReady:
      return "not_ready";
    case HealthState::Phase::kGone:
      return "gone";
  }
  return "unknown";
}

void write_signals(const ReplicaFigures& figures, TimePoint now, JsonWriter& json) {
  const Signals& signals = figures.signals;
  json.key("signals");
  if (signals.observed_at == TimePoint{}) {
    json.null();
    return;
  }
  json.begin_object();
  json.key("age_s").number(to_seconds(now - signals.observed_at));
  json.key("fresh").boolean(signals.fresh(now));
  json.key("kv_usage").number(decimal(signals.kv_usage));
  json.key("running").number(decimal(signals.running));
  json.key("waiting").number(decimal(signals.waiting));
  json.key("queued_tokens").number(decimal(signals.queued_tokens));
  json.key("prefix_hit_rate").number(decimal(signals.prefix_hit_rate));
  const auto known = [&json](std::string_view key, std::uint64_t value) {
    json.key(key);
    value == 0 ? json.null() : json.integer(static_cast<std::int64_t>(value));
  };
  known("kv_capacity_tokens", signals.kv_capacity_tokens);
  known("block_tokens", signals.block_tokens);
  json.end_object();
}

// By data-parallel rank; empty where none are followed.
void write_kv_events(const ReplicaFigures& figures, JsonWriter& json) {
  json.key("kv_events").begin_array();
  for (const KvEventFeed::Status& rank : figures.kv_events) {
    json.begin_object();
    json.key("rank").integer(rank.rank);
    json.key("trust").string(label(rank.trust));
    json.key("why").string(rank.why);
    json.key("next").integer(static_cast<std::int64_t>(rank.next));
    json.key("blocks").integer(static_cast<std::int64_t>(rank.blocks));
    json.key("block_tokens");
    rank.block_tokens == 0 ? json.null() : json.integer(rank.block_tokens);
    json.key("gaps").integer(static_cast<std::int64_t>(rank.batches.gaps));
    json.key("losses").integer(static_cast<std::int64_t>(rank.batches.losses));
    json.key("restarts").integer(static_cast<std::int64_t>(rank.batches.restarts));
    json.key("delay_s");
    rank.delay_s ? json.number(*rank.delay_s) : json.null();
    json.end_object();
  }
  json.end_array();
}

// How far predictions of cached tokens come true.
void write_cached_tokens(const ReplicaFigures& figures, JsonWriter& json) {
  const CachedTokensError& error = figures.cached_error;
  json.key("cached_tokens").begin_object();
  json.key("answers").integer(static_cast<std::int64_t>(error.answers));
  const auto last = [&](std::string_view key, std::uint32_t value) {
    json.key(key);
    error.answers == 0 ? json.null() : json.integer(value);
  };
  last("last_predicted", error.last_predicted);
  last("last_actual", error.last_actual);
  json.key("overpredicted").integer(static_cast<std::int64_t>(error.over_tokens));
  json.key("underpredicted").integer(static_cast<std::int64_t>(error.under_tokens));
  json.key("believed_share").begin_object();
  for (std::size_t i = 0; i < kKnowledges; ++i) {
    json.key(label(static_cast<Knowledge>(i))).number(figures.believed_share[i]);
  }
  json.end_object();
  json.key("assumed_blocks");
  figures.assumed_blocks == 0 ? json.null()
                              : json.integer(static_cast<std::int64_t>(figures.assumed_blocks));
  json.end_object();
}

void write_replica(const ReplicaFigures& figures, TimePoint now, JsonWriter& json) {
  const ReplicaStatus& status = figures.status;
  json.begin_object();
  json.key("id").integer(status.index);
  json.key("url").string(status.spec.url);
  json.key("pool").string(status.spec.pool);
  json.key("weight").number(status.spec.weight);
  json.key("kv_capacity_tokens").integer(static_cast<std::int64_t>(status.spec.kv_capacity_tokens));
  json.key("usable").boolean(status.usable);
  json.key("why").string(status.why);
  json.key("state").string(state_word(status));
  json.key("probe").string(status.health.detail);
  json.key("awake").boolean(status.health.awake);
  json.key("draining").boolean(status.draining);
  json.key("ejected_for_s");
  if (status.health.ejected(now)) {
    json.number(to_seconds(status.health.ejected_until - now));
  } else {
    json.null();
  }
  json.key("engine").string(status.engine);
  json.key("models");
  if (status.has_model_list) {
    json.begin_array();
    for (const std::string& model : status.models) json.string(model);
    json.end_array();
  } else {
    json.null();
  }
  json.key("load").begin_object();
  json.key("in_flight").integer(figures.load.in_flight);
  json.key("awaiting_first_token").integer(figures.load.awaiting);
  json.key("outstanding_prefill_tokens").integer(figures.load.prefill_tokens);
  json.key("charged_prompt_tokens").integer(figures.load.prompt_tokens);
  json.key("prefill_tokens_per_second").number(figures.prefill_rate);
  json.end_object();
  write_signals(figures, now, json);
  write_cached_tokens(figures, json);
  json.key("metrics_problem").string(figures.scrape ? figures.scrape->problem : "");
  write_kv_events(figures, json);
  json.key("tries").begin_object();
  for (std::size_t i = 0; i < ProxyMetrics::kOutcomes; ++i) {
    json.key(label(static_cast<ProxyMetrics::ReplicaOutcome>(i)))
        .integer(static_cast<std::int64_t>(figures.requests.tries[i]));
  }
  json.end_object();
  json.key("ttft_last_minute").begin_object();
  json.key("samples").integer(static_cast<std::int64_t>(figures.requests.ttft.count));
  const bool any = figures.requests.ttft.count > 0;
  const auto seconds = [&json, any](std::string_view key, Duration value) {
    json.key(key);
    any ? json.number(to_seconds(value)) : json.null();
  };
  seconds("p50_s", figures.requests.ttft.p50);
  seconds("p95_s", figures.requests.ttft.p95);
  json.end_object();
  json.end_object();
}

}  // namespace

Reply AdminSite::answer(const HttpRequest& request) {
  const std::string& path = request.path;
  const bool known = path == "/healthz" || path == "/readyz" || path == "/metrics";
  if (known && !reads(request)) return wrong_method("GET, HEAD");
  if (path == "/healthz") return {200, kText, "ok\n", {}};
  if (path == "/readyz") {
    const bool ready = state_.ready && state_.ready();
    return {ready ? 200 : 503, kText, ready ? "ready\n" : "not ready\n", {}};
  }
  if (options_.admin && !options_.key.empty() &&
      !bears_key(request.header("authorization"), options_.key)) {
    Reply reply =
        error_reply(401, "key", "the admin port's key is needed: Authorization: Bearer …");
    reply.headers.emplace_back("WWW-Authenticate", "Bearer");
    return reply;
  }
  if (path == "/metrics") return {200, Exposition::kContentType, metrics_page(state_), {}};
  if (!options_.admin) return not_found(path);
  return answer_admin(request);
}

Reply AdminSite::answer_admin(const HttpRequest& request) {
  const std::string& path = request.path;
  if (!reads(request)) {
    if (request.method != "POST" && request.method != "DELETE") {
      return wrong_method("GET, HEAD, POST, DELETE");
    }
    if (!is_trusted_host(request.header("host"), options_.hosts)) {
      return error_reply(403, "host",
                         "the Host header must be an IP address, localhost or one of "
                         "admin_access.hosts for a call that changes something");
    }
    if (!is_json(request.header("content-type"))) {
      return error_reply(415, "content_type",
                         "a call that changes something needs Content-Type: application/json");
    }
  }
  if (path == "/v1/replicas") {
    if (reads(request)) return list_replicas();
    return request.method == "POST" ? add_replica(request) : wrong_method("GET, HEAD, POST");
  }
  constexpr std::string_view kReplicas = "/v1/replicas/";
  if (path.starts_with(kReplicas)) {
    return one_replica(request, std::string_view(path).substr(kReplicas.size()));
  }
  if (path == "/v1/config") {
    if (!reads(request)) return wrong_method("GET, HEAD");
    Reply reply{200, kJson, {}, {}};
    actions_.append_config(reply.body);
    return reply;
  }
  if (path == "/v1/signals") {
    return request.method == "POST" ? push_signals(request) : wrong_method("POST");
  }
  return not_found(path);
}

Reply AdminSite::list_replicas() const {
  const TimePoint now = state_.clock.now();
  JsonWriter json;
  json.begin_object().key("replicas").begin_array();
  for (const ReplicaFigures& figures : replica_figures(state_)) write_replica(figures, now, json);
  json.end_array().end_object();
  return json_reply(200, json.take());
}

Reply AdminSite::add_replica(const HttpRequest& request) {
  const Result<YamlNode> tree = parse_json_tree(request.body);
  if (!tree) return error_reply(400, "body", tree.error().message);
  const Result<PooledReplica> pooled = read_pooled_replica(*tree, actions_.config);
  if (!pooled) return error_reply(400, "body", pooled.error().message);
  const Result<ReplicaIndex> added = actions_.add(pooled->replica, pooled->pool);
  if (!added) return error_reply(409, "replica", added.error().message);
  const std::string& url = pooled->replica.url;
  note(request, url, "was added");
  const std::string doubt = replica_url_warning(url);
  if (!doubt.empty()) log_warning(doubt);
  JsonWriter json;
  json.begin_object().key("id").integer(*added).key("url").string(url);
  if (!doubt.empty()) json.key("warning").string(doubt);
  json.end_object();
  return json_reply(201, json.take());
}

Reply AdminSite::one_replica(const HttpRequest& request, std::string_view rest) {
  const std::size_t slash = rest.find('/');
  const std::optional<std::string> name = decoded(rest.substr(0, slash));
  const std::string_view verb =
      slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
  if (!name) return error_reply(400, "path", "a broken percent escape in the path");
  const bool turns = verb == "drain" || verb == "undrain";
  if (!verb.empty() && !turns) return not_found(request.path);
  const std::optional<ReplicaStatus> status = find_replica(*name);
  if (!status) {
    return error_reply(404, "replica",
                       "no replica '" + name->substr(0, 200) +
                           "'; give its id, HOST:PORT, or its URL percent-encoded");
  }
  const std::string& url = status->spec.url;
  Result<void> outcome;
  const char* change = nullptr;
  if (turns) {
    if (request.method != "POST") return wrong_method("POST");
    outcome = state_.fleet.set_draining(url, verb == "drain");
    change = verb == "drain" ? "was told to drain" : "was told to drain no more";
  } else if (request.method == "DELETE") {
    outcome = state_.fleet.remove(url);
    change = "was removed";
  } else if (!reads(request)) {
    return wrong_method("GET, HEAD, DELETE");
  } else {
    for (const ReplicaFigures& figures : replica_figures(state_)) {
      if (figures.status.index != status->index) continue;
      JsonWriter json;
      write_replica(figures, state_.clock.now(), json);
      return json_reply(200, json.take());
    }
  }
  if (!outcome) return error_reply(409, "replica", outcome.error().message);
  note(request, url, change);
  JsonWriter json;
  json.begin_object().key("id").integer(status->index).key("url").string(url).end_object();
  return json_reply(200, json.take());
}

std::optional<ReplicaStatus> AdminSite::find_replica(std::string_view name) const {
  std::uint32_t number = 0;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool is_number = read.ec == std::errc() && read.ptr == name.data() + name.size();
  std::optional<ReplicaStatus> found;
  for (ReplicaStatus& status : state_.fleet.status()) {
    if (status.spec.url == name || (is_number && status.index == number)) return std::move(status);
    // Two replicas may share an address, with different path prefixes: then it names neither.
    if (authority_of(status.spec.host, status.spec.port) == name) {
      if (found) return std::nullopt;
      found = std::move(status);
    }
  }
  return found;
}

Reply AdminSite::push_signals(const HttpRequest& request) {
  const Result<void> taken =
      take_pushed_signals(request.body, state_.fleet, state_.router, options_.report_max_age,
                          state_.clock.now(), actions_.unix_time());
  if (!taken) return error_reply(400, "signals", taken.error().message);
  return json_reply(200, "{}");
}

}  // namespace pointsman
