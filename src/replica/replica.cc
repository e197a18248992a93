#include "replica/replica.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/ascii.h"
#include "base/json_text.h"
#include "replica/answer_writer.h"
#include "replica/exchange.h"

namespace pointsman {
namespace {

constexpr std::string_view kJson = "application/json";
// Requests with documents of a million tokens are still taken.
constexpr std::size_t kMaxBody = 64 * 1024 * 1024;

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

HttpServer::Options server_options() {
  HttpServer::Options options;
  options.max_body = kMaxBody;
  options.max_connections = 0;
  options.keep_alive_timeout = std::chrono::seconds(5);  // uvicorn's
  options.server_name = "uvicorn";
  return options;
}

std::string hex16(std::uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// What probes and scrapes ask for: answered whatever else goes wrong, unless a fault names it.
bool is_page(std::string_view path) {
  return path == "/health" || path == "/ping" || path == "/metrics";
}

void send_error(const HttpResponse& response, const ApiError& error) {
  response.send(error.status, kJson, error.body());
}

std::uint64_t hash_tokens(const TokenIds& tokens) {
  std::uint64_t hash = tokens.size();
  for (const std::uint32_t token : tokens) hash = mix_hash(hash, token);
  return hash;
}

}  // namespace

Replica::Replica(Reactor& reactor, ReplicaOptions options)
    : reactor_(reactor),
      options_(std::move(options)),
      started_(unix_seconds()),
      driver_(reactor.io(), options_.engine, options_.speed,
              [this](const sim::EngineEvent& event) { on_event(event); }),
      server_(reactor, server_options(), [this](HttpRequest request, const HttpResponse& response) {
        handle(std::move(request), response);
      }) {
  if (options_.kv_events.events.empty()) return;
  kv_publisher_ = std::make_unique<KvPublisher>(reactor.io(), options_.kv_events);
  driver_.watch_cache([this](std::span<const sim::ChainRun> changes) {
    kv_publisher_->publish(kv_journal_.take(changes));
  });
}

// Before what it holds of answers goes: one that is merely forgotten would be answered 500.
Replica::~Replica() {
  server_.cut_all();
}

Result<void> Replica::listen(std::string_view address, std::uint16_t port) {
  address_ = address;
  if (kv_publisher_) {
    if (Result<void> started = kv_publisher_->start(); !started) return started;
  }
  return server_.listen(address, port);
}

std::uint64_t Replica::max_model_len() const {
  return std::min<std::uint64_t>(options_.max_model_len, options_.engine.capacity_tokens());
}

ReplicaStats Replica::stats() const {
  ReplicaStats stats = stats_;
  stats.in_flight = exchanges_.size() + held_.size();
  return stats;
}

void Replica::handle(HttpRequest request, const HttpResponse& response) {
  if (handle_control(request, response)) return;
  const bool page = is_page(request.path);
  const auto kept = std::make_shared<const HttpRequest>(std::move(request));
  const std::optional<Fault> fault = faults_.take(kept->path, page);
  if (!page) {
    ++stats_.received;
    last_request_ = kept;
  }
  if (!fault) return handle_api(kept, response, fault);
  ++stats_.faults;
  if (fault->delay == Duration{}) return handle_api(kept, response, fault);
  const std::uint64_t held = hold(response);
  after(fault->delay, [this, kept, response, fault, held] {
    if (!held_.contains(held)) return;
    let_go(held);
    handle_api(kept, response, fault);
  });
}

void Replica::answer_page(const HttpRequest& request, const HttpResponse& response) const {
  if (request.path == "/metrics") {
    response.send(
        200, "text/plain; version=1.0.0; charset=utf-8",
        metrics_page(options_.model, options_.engine, driver_.engine().state(), counts_, !asleep_));
  } else if (request.method != "GET") {
    response.send(405, kJson, R"({"detail":"Method Not Allowed"})", {{"Allow", "GET"}});
  } else {
    response.send(health_status_, {}, {});
  }
}

bool Replica::handle_control(const HttpRequest& request, const HttpResponse& response) {
  if (request.path == "/fault" && request.method == "DELETE") {
    faults_.clear();
    response.send(200, kJson, "{}");
  } else if (request.path == "/fault") {
    Result<Fault> fault = parse_fault(request.body);
    if (!fault) {
      send_error(response, {400, "Bad Request", fault.error().message, {}});
      return true;
    }
    add_fault(std::move(*fault));
    response.send(200, kJson, "{}");
  } else if (request.path == "/state") {
    change_state(request.body, response);
  } else if (request.path == "/debug/requests") {
    response.send(200, kJson, debug_page());
  } else if (request.path == "/debug/last") {
    response.send(200, "application/octet-stream", last_request_bytes());
  } else {
    return false;
  }
  return true;
}

void Replica::handle_api(const RequestPtr& request, const HttpResponse& response,
                         const std::optional<Fault>& fault) {
  if (fault && fault->replaces_answer()) return answer_with(*fault, response);
  if (is_page(request->path)) return answer_page(*request, response);
  const std::string& path = request->path;
  const bool chat = path == "/v1/chat/completions";
  const bool post =
      chat || path == "/v1/completions" || path == "/tokenize" || path == "/reset_prefix_cache";
  if (!post && path != "/v1/models" && path != "/version") {
    return response.send(404, kJson, R"({"detail":"Not Found"})");
  }
  if (request->method != (post ? "POST" : "GET")) {
    return response.send(405, kJson, R"({"detail":"Method Not Allowed"})",
                         {{"Allow", post ? "POST" : "GET"}});
  }
  if (path == "/tokenize") return tokenize(*request, response);
  if (path == "/reset_prefix_cache") return reset_prefix_cache(response);
  if (post) {
    return complete(*request, chat ? CompletionApi::kChat : CompletionApi::kCompletions, response,
                    fault);
  }
  if (path == "/version") return response.send(200, kJson, R"({"version":"0.32.0"})");
  std::string models = R"({"object":"list","data":[{"id":)";
  append_json_string(models, options_.model);
  models.append(R"(,"object":"model","created":)").append(std::to_string(started_));
  models.append(R"(,"owned_by":"pointsman","root":)");
  append_json_string(models, options_.model);
  models.append(R"(,"parent":null,"max_model_len":)").append(std::to_string(max_model_len()));
  models.append("}]}");
  response.send(200, kJson, models);
}

void Replica::tokenize(const HttpRequest& request, const HttpResponse& response) {
  const auto parsed = parse_completion(CompletionApi::kTokenize, request.body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return send_error(response, *error);
  const TokenIds& tokens = std::get<CompletionRequest>(parsed).prompts.front();
  std::string body = R"({"count":)" + std::to_string(tokens.size()) + R"(,"max_model_len":)" +
                     std::to_string(max_model_len()) + R"(,"tokens":[)";
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) body.push_back(',');
    body.append(std::to_string(tokens[i]));
  }
  body.append(R"(],"token_strs":null})");
  response.send(200, kJson, body);
}

// As in the engine, the clearing is published after the next step.
void Replica::reset_prefix_cache(const HttpResponse& response) {
  const bool done = driver_.reset_cache();
  if (done) kv_journal_.clear();
  response.send(200, kJson, done ? R"({"success":true})" : R"({"success":false})");
}

std::optional<ApiError> Replica::refusal(const CompletionRequest& request) {
  if (!request.model.empty() && request.model != options_.model) {
    return ApiError{
        404, "NotFoundError",
        "The model `" + request.model + "` does not exist. Valid aliases: " + options_.model + ".",
        "model"};
  }
  const std::uint64_t limit = max_model_len();
  if (request.max_tokens && *request.max_tokens > limit) {
    const std::string asked = std::to_string(*request.max_tokens);
    return ApiError{
        400, "BadRequestError",
        "max_tokens=" + asked + " cannot be greater than max_model_len=" + std::to_string(limit) +
            ". Please request fewer output tokens. (parameter=max_tokens, value=" + asked + ")",
        "max_tokens"};
  }
  for (const TokenIds& prompt : request.prompts) {
    const std::uint64_t output = std::max(request.max_tokens.value_or(1), 1U);
    if (prompt.size() + output <= limit) continue;
    return ApiError{400, "BadRequestError",
                    "This model's maximum context length is " + std::to_string(limit) +
                        " tokens. However, you requested " + std::to_string(output) +
                        " output tokens and your prompt contains " + std::to_string(prompt.size()) +
                        " input tokens. Please reduce the length "
                        "of the input prompt or the number of requested output tokens.",
                    "input_tokens"};
  }
  if (options_.max_num_queued_reqs > 0 &&
      driver_.engine().state().waiting >= options_.max_num_queued_reqs) {
    ++counts_.rejected;
    return ApiError{503,
                    "Service Unavailable",
                    "The engine is currently busy and cannot accept new requests. Please try again "
                    "later or on a different instance.",
                    {}};
  }
  return std::nullopt;
}

HttpHeaders Replica::answer_headers(const HttpRequest& request, bool stream) const {
  HttpHeaders headers;
  const std::string_view id = request.header("x-request-id");
  if (options_.request_id_headers && !id.empty()) headers.emplace_back("x-request-id", id);
  // ORCA load report, on whole answers only.
  const std::string_view format = request.header("endpoint-load-metrics-format");
  if (stream || format.empty()) return headers;
  const sim::EngineState state = driver_.engine().state();
  char text[200];
  if (iequals(format, "json")) {
    std::snprintf(text, sizeof text,
                  R"(JSON {"named_metrics": {"num_requests_waiting": %zu.0, )"
                  R"("kv_cache_usage_perc": %.6g}})",
                  state.waiting, state.kv_usage);
    headers.emplace_back("endpoint-load-metrics", text);
  } else if (iequals(format, "text")) {
    std::snprintf(text, sizeof text,
                  "TEXT named_metrics.num_requests_waiting=%zu.0, "
                  "named_metrics.kv_cache_usage_perc=%.6g",
                  state.waiting, state.kv_usage);
    headers.emplace_back("endpoint-load-metrics", text);
  }
  return headers;
}

void Replica::complete(const HttpRequest& request, CompletionApi api, const HttpResponse& response,
                       const std::optional<Fault>& fault) {
  const auto parsed = parse_completion(api, request.body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return send_error(response, *error);
  const auto& wanted = std::get<CompletionRequest>(parsed);
  if (const std::optional<ApiError> error = refusal(wanted)) return send_error(response, *error);

  std::string_view id = request.header("x-request-id");
  const std::string own_id =
      hex16(mix_hash(static_cast<std::uint64_t>(started_) ^ server_.port(), next_id_));
  if (!wanted.request_id.empty()) id = wanted.request_id;
  if (id.empty()) id = own_id;

  const auto exchange = std::make_shared<Exchange>(
      Exchange{.response = response,
               .writer = AnswerWriter(api, id, options_.model, unix_seconds()),
               .stream = wanted.stream,
               .include_usage = wanted.include_usage,
               .headers = answer_headers(request, wanted.stream),
               .fault = fault,
               .arrived = reactor_.now(),
               .parts = {}});
  if (exchange->stream) {
    response.begin(200, "text/event-stream; charset=utf-8", exchange->headers);
  }
  if (fault && fault->after_head) return break_off(fault->then, response);
  exchanges_.insert(exchange);
  response.on_gone([this, weak = std::weak_ptr<Exchange>(exchange)] {
    const ExchangePtr gone = weak.lock();
    if (!gone || !exchanges_.contains(gone)) return;
    ++stats_.cancelled;
    drop(gone);
  });
  submit(exchange, wanted);
}

void Replica::submit(const ExchangePtr& exchange, const CompletionRequest& request) {
  const std::uint64_t seed = hash_text(request.cache_salt, hash_text(options_.model));
  for (const TokenIds& prompt : request.prompts) {
    const std::uint64_t prompt_hash = hash_tokens(prompt);
    const auto room = static_cast<std::uint32_t>(max_model_len() - prompt.size());
    const std::uint32_t limit = request.max_tokens.value_or(room);
    std::uint32_t output = request.max_tokens.value_or(drawn_answer_tokens(prompt_hash));
    if (request.min_tokens > 0) output = request.min_tokens;
    output = std::min({output, limit, room});

    Part part{.id = next_id_++,
              .answer = AnswerText(prompt_hash),
              .prompt_tokens = static_cast<std::uint32_t>(prompt.size()),
              .output_tokens = output,
              .stops = output < limit};
    // The answer is part of the chain: the next turn of the conversation finds it in the cache.
    TokenIds tokens = prompt;
    std::string text;
    for (std::uint32_t i = 0; i < output; ++i) text.append(part.answer.token(i));
    const TokenIds answer = tokens_of(text);
    tokens.insert(tokens.end(), answer.begin(), answer.end());

    running_.emplace(part.id, std::pair(exchange, exchange->parts.size()));
    const std::vector<sim::ChainRun> chain = block_chain(tokens, seed);
    if (kv_publisher_) {
      kv_journal_.enter(chain, tokens, request.cache_salt);
      for (const sim::ChainRun& run : chain) part.blocks.push_back(run.id);
    }
    const sim::EngineRequest work{.id = part.id,
                                  .prompt_tokens = part.prompt_tokens,
                                  .output_tokens = output,
                                  .chain = chain};
    exchange->parts.push_back(std::move(part));
    ++exchange->open;
    driver_.submit(work);
  }
}

void Replica::on_event(const sim::EngineEvent& event) {
  const auto found = running_.find(event.request);
  if (found == running_.end()) return;
  const auto [exchange, index] = found->second;
  if (event.kind == sim::EngineEventKind::kFinished) return on_finished(exchange, event);

  Part& part = exchange->parts[index];
  const TimePoint now = reactor_.now();
  if (event.token == 0) {
    on_first_token(exchange, index, event);
  } else {
    counts_.itl.add(to_seconds(now - part.last_token) * driver_.speed());
  }
  part.last_token = now;
  part.text.append(part.answer.token(event.token));
  if (!exchange->stream) return;

  const bool last = event.token + 1 == part.output_tokens;
  const bool due = event.token % options_.stream_interval == 0;
  if (!last && !due) return;
  const std::string_view reason = !last ? "" : part.stops ? "stop" : "length";
  const std::string text = std::move(part.text);
  part.text.clear();
  send_event(exchange, exchange->writer.text_event(index, text, reason));
}

void Replica::on_first_token(const ExchangePtr& exchange, std::size_t index,
                             const sim::EngineEvent& event) {
  Part& part = exchange->parts[index];
  part.cached = event.cached;
  counts_.prompt_tokens += part.prompt_tokens;
  counts_.cached_tokens += event.cached;
  counts_.ttft.add(to_seconds(reactor_.now() - exchange->arrived) * driver_.speed());
  if (!exchange->stream) return;
  const std::string opening = exchange->writer.role_event(index);
  if (!opening.empty()) send_event(exchange, opening);
}

void Replica::on_finished(const ExchangePtr& exchange, const sim::EngineEvent& event) {
  const Part& finished = exchange->parts[running_.at(event.request).second];
  ++(finished.stops ? counts_.finished_stop : counts_.finished_length);
  counts_.e2e.add(to_seconds(reactor_.now() - exchange->arrived) * driver_.speed());
  leave_cache(finished);
  running_.erase(event.request);
  if (--exchange->open > 0) return;

  TokenUsage usage;
  for (const Part& part : exchange->parts) {
    usage.prompt_tokens += part.prompt_tokens;
    usage.completion_tokens += part.output_tokens;
    usage.cached_tokens += part.cached;
  }
  if (exchange->stream) {
    if (exchange->include_usage) send_event(exchange, exchange->writer.usage_event(usage));
    send_event(exchange, AnswerWriter::kDoneEvent);
    if (exchanges_.erase(exchange) == 0) return;  // broken off by a fault, or left by the client
    ++stats_.completed;
    return exchange->response.end();
  }
  std::vector<AnswerChoice> choices;
  for (Part& part : exchange->parts) choices.push_back({std::move(part.text), part.stops});
  exchanges_.erase(exchange);
  ++stats_.completed;
  exchange->response.send(200, kJson, exchange->writer.whole(choices, usage), exchange->headers);
}

void Replica::send_event(const ExchangePtr& exchange, std::string_view event) {
  if (!exchanges_.contains(exchange)) return;
  const std::optional<Fault>& fault = exchange->fault;
  if (!fault || !fault->after_events || exchange->events_sent < *fault->after_events) {
    ++exchange->events_sent;
    exchange->response.write(event);
    return;
  }
  if (fault->in_event) {
    char size[24];
    std::snprintf(size, sizeof size, "%zx\r\n", event.size());
    exchange->response.write_raw(size + std::string(event.substr(0, event.size() / 2)));
  }
  drop(exchange);
  break_off(fault->then, exchange->response);
}

void Replica::leave_cache(const Part& part) {
  if (kv_publisher_) kv_journal_.leave(part.blocks);
}

void Replica::drop(const ExchangePtr& exchange) {
  for (const Part& part : exchange->parts) {
    if (running_.erase(part.id) == 0) continue;
    leave_cache(part);
    driver_.cancel(part.id);
  }
  exchanges_.erase(exchange);
}

}  // namespace pointsman
