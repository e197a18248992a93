#include "proxy/exchange.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/ascii.h"
#include "features/multipart_model.h"
#include "features/session_key.h"
#include "http/openai_error.h"
#include "http/path.h"
#include "proxy/proxy_shard.h"

namespace pointsman {
namespace {

// Memory that a spare exchange may keep: a head, and the blocks of a prompt of 128 KiB.
constexpr std::size_t kUsualText = 4096;
constexpr std::size_t kUsualBlocks = 2048;

// Where model lists are asked for again; longer than any probe's time-out would serve nobody.
constexpr Duration kModelsWait = std::chrono::seconds(2);

// For the ids of a long prompt: some 4 MiB of text by one thread. An estimate now is then better
// than its ids.
constexpr Duration kIdsWait = std::chrono::milliseconds(200);

}  // namespace

Exchange::Exchange(ProxyShard& shard)
    : shard_(shard),
      timer_([this] { on_timeout(); }),
      request_parser_(shard.options().limits.head),
      body_(shard.body_blocks(), shard.options().limits.max_body),
      response_parser_(shard.options().limits.head),
      hold_timer_([this] { on_head_hold_over(); }) {}

Exchange::~Exchange() {
  drop_token_job();
}

void Exchange::reset() {
  client_ = nullptr;
  state_ = State::kReading;
  key_ = KeyLease();
  request_parser_.reset();
  body_.reset();
  rule_ = PathRule{};
  facts_.clear();
  drop_token_job();
  path_.clear();
  http10_ = false;
  keep_alive_ = true;
  has_request_ = true;
  replica_ = kNoReplica;
  reason_ = Reason::kPolicy;
  pinned_ = logged_ = false;
  output_events_ = 0;
  predicted_cached_ = 0;
  failed_.clear();
  tries_ = retries_ = retries_after_sent_ = 0;
  ticket_ = 0;
  observer_.reset();
  upstream_unsent_.clear();
  upstream_unsent_at_ = body_sent_ = 0;
  fully_sent_ = pumping_ = stale_resent_ = send_broken_ = any_byte_ = input_overrun_ = false;
  response_parser_.reset();
  response_body_.start(BodyKind::kNone, 0, false);
  response_head_.clear();
  held_.clear();
  hold_ = Hold::kNone;
  head_sent_ = reuse_upstream_ = event_stream_ = first_token_seen_ = response_learnt_ = false;
  client_keeps_ = true;
  first_token_at_ = last_output_at_ = TimePoint{};
  status_ = 0;
  error_word_ = {};
  response_bytes_ = 0;
  saved_answer_.clear();
  saved_status_ = 0;
  tunnel_unsent_.clear();
  timer_.cancel();
  hold_timer_.cancel();
  unlink();
  // One unusual request is no reason to keep its memory for all usual ones.
  for (std::string* text : {&upstream_unsent_, &response_head_, &saved_answer_, &tunnel_unsent_,
                            &facts_.model, &path_, &request_id_}) {
    if (text->capacity() > kUsualText) std::string().swap(*text);
  }
  if (facts_.blocks.capacity() > kUsualBlocks) std::vector<BlockHash>().swap(facts_.blocks);
}

void Exchange::wait(Wait what, Duration limit) {
  waiting_for_ = what;
  shard_.arm(timer_, limit);
}

// --- the request ---------------------------------------------------------------------------------

void Exchange::begin(ClientConnection& client) {
  client_ = &client;
  started_ = shard_.reactor().now();
  shard_.metrics().request_started();
  const RequestHead& head = request_parser_.head();
  if (head.steers()) judge_steering();
  method_ = head.method();
  http10_ = head.version_minor() == 0;
  keep_alive_ = head.keep_alive() && !client.last_request();
  request_id_ = head.request_id().empty() ? shard_.next_request_id() : head.request_id();
  body_.start(head);
  body_patience_ = shard_.options().timeouts.client_body_gap;
  // What is here already: a request refused below keeps its connection if its body is whole.
  body_.advance_in_place(input_body(), /*room=*/1);
  route();
}

void Exchange::route() {
  const RequestHead& head = request_parser_.head();
  if (head.target() == "*") {
    path_ = head.target();
    return refuse_path();
  }
  const std::optional<std::string_view> path = routing_path(head.path(), shard_.body_scratch());
  if (!path) {
    path_ = head.path();
    return reply_own({.status = 400,
                      .type = "invalid_request_error",
                      .message = "the path can be read in two ways (dot segments, empty segments, "
                                 "encoded slashes or control characters)",
                      .kind = "bad_path"});
  }
  path_ = *path;
  rule_ = shard_.shared().paths.find(method_, path_);
  const bool for_all = rule_.action == PathAction::kAlive || rule_.action == PathAction::kReady;
  if (!for_all && !admitted()) return;
  switch (rule_.action) {
    case PathAction::kAlive:
      return answer_ready(/*alive_only=*/true);
    case PathAction::kReady:
      return answer_ready(/*alive_only=*/false);
    case PathAction::kModels:
      if (shard_.deps().append_models) return answer_models();
      break;
    case PathAction::kNotFound:
      return refuse_path();
    case PathAction::kProxy:
      break;
  }
  if (body_too_large()) return refuse_body();
  shard_.shared().retry_budget.count_request(started_);
  if (body_.complete()) return read_features();
  if (head.expect_continue() && input_body().empty()) {
    client_->send("HTTP/1.1 100 Continue\r\n\r\n");
  }
  read_body();
}

// The bytes behind the head in the connection's input.
std::string_view Exchange::input_body() const {
  return client_->input().bytes().substr(request_parser_.head().size());
}

void Exchange::read_body() {
  InputBuffer& input = client_->input();
  body_progress(body_.advance_in_place(input_body(), input.room()));
}

// By what is announced, or by what has come.
bool Exchange::body_too_large() const {
  const std::size_t limit = shard_.options().limits.request_body;
  if (limit == 0) return false;
  const std::uint64_t announced = request_parser_.head().content_length().value_or(0);
  return std::max(announced, body_.payload_bytes()) > limit;
}

void Exchange::body_progress(RequestBody::Progress progress) {
  if (body_too_large()) return refuse_body();
  switch (progress) {
    case RequestBody::Progress::kNeedMore:
      expect_body();
      return client_->want_read();
    case RequestBody::Progress::kBad:
      return refuse_bad_body();
    case RequestBody::Progress::kTooLarge:
      shard_.metrics().bodies_not_held.add();
      break;
    case RequestBody::Progress::kComplete:
      break;
  }
  client_->expect_body_within(Duration::zero());
  read_features();
}

// The client is waited for. What has come late leaves less time for what is still to come, so that
// a body that trickles is no more waited for than one that stops.
void Exchange::expect_body() {
  body_awaited_since_ = shard_.reactor().coarse_now();
  const bool limited = shard_.options().timeouts.client_body_gap > Duration::zero();
  client_->expect_body_within(limited ? std::max(body_patience_, Duration(1)) : Duration::zero());
}

void Exchange::body_came(std::uint64_t bytes) {
  const Duration gap = shard_.options().timeouts.client_body_gap;
  const std::size_t rate = shard_.options().limits.body_rate;
  if (rate == 0) {
    body_patience_ = gap;
    return;
  }
  const TimePoint now = shard_.reactor().coarse_now();
  body_patience_ -= now - body_awaited_since_;
  body_awaited_since_ = now;
  // More than a gap's worth is not saved up.
  const double worth_s = static_cast<double>(bytes) / static_cast<double>(rate);
  body_patience_ = std::min(gap, body_patience_ + from_seconds(std::min(worth_s, to_seconds(gap))));
}

void Exchange::on_client_readable() {
  if (state_ == State::kTunnel) return tunnel_from_client();
  if (state_ != State::kReading) {
    if (pumping_) return pump_body();
    return read_ahead();
  }
  InputBuffer& input = client_->input();
  const bool moved = body_.moved();
  const IoResult got = moved ? client_->stream().read(body_.tail(), body_.room())
                             : client_->stream().read(input.tail(), input.room());
  if (!client_sent(got)) return;
  body_came(got.bytes);
  if (!moved) {
    input.added(got.bytes);
    return read_body();
  }
  body_progress(body_.advance_moved(got.bytes));
}

// Whether the client sent something. Where not, it is waited for, or it has left.
bool Exchange::client_sent(const IoResult& got) {
  switch (got.status) {
    case IoResult::Status::kOk:
      return true;
    case IoResult::Status::kWouldBlock:
      client_->want_read();
      return false;
    case IoResult::Status::kEnd:
    case IoResult::Status::kError:
      break;
  }
  on_client_gone();
  return false;
}

// Watches for the client's leaving while its request is served; what it sends meanwhile is its next
// request.
void Exchange::read_ahead() {
  InputBuffer& input = client_->input();
  if (input.empty()) input.prepare();
  if (input.room() == 0) {
    // A large request, or many small ones behind it, fill the input: no more is read, but an end is
    // still seen.
    if (client_->stream().ended()) return on_client_gone();
    return client_->stream().want_end();
  }
  const IoResult got = client_->stream().read(input.tail(), input.room());
  switch (got.status) {
    case IoResult::Status::kOk:
      input.added(got.bytes);
      break;
    case IoResult::Status::kWouldBlock:
      input.release_if_empty();
      break;
    case IoResult::Status::kEnd:
    case IoResult::Status::kError:
      return on_client_gone();
  }
  client_->want_read();
}

void Exchange::on_body_timeout() {
  if (head_sent_) return on_client_gone();
  reply_own({.status = 408,
             .type = "invalid_request_error",
             .message = "the request's body did not come in time",
             .kind = "body_timeout"});
}

void Exchange::read_features() {
  state_ = State::kChoosing;
  const RequestHead& head = request_parser_.head();
  const std::string_view session = session_header();
  ChatRequestReader& reader = shard_.request_reader();
  const Needs needs = shard_.shared().needs;
  const std::string_view body = payload();
  if (body.empty()) {
    reader.read_none(session, facts_);
  } else if (is_multipart_form(head.content_type())) {
    reader.read_none(session, facts_);
    if (const auto model = multipart_model(head.content_type(), body)) {
      facts_.model = *model;
      facts_.model_field = RequestFacts::Model::kNamed;
    }
  } else if (body_.complete()) {
    reader.read(rule_.api, body, body.size() + kReadPadding, session, needs, facts_);
    if (facts_.ids_pending) {
      token_job_ = std::make_shared<TokenJob>();
      token_job_->prompt = reader.take_pending();
    }
  } else {
    reader.read_partial(rule_.api, body, session, needs, facts_);
  }
  if (facts_.response_id == 0) {
    facts_.response_id = response_key(response_id_in(path_));
  }
  shard_.metrics().request_bytes.add(body_.payload_bytes());
  check_model();
}

std::string_view Exchange::session_header() const {
  if (!shard_.shared().needs.session) return {};
  for (const std::string& name : shard_.options().session_headers) {
    const std::optional<std::string_view> value = request_parser_.head().find(name);
    if (value && !value->empty()) return *value;
  }
  return {};
}

// Valid until the next handler; kReadPadding bytes behind it may be read.
std::string_view Exchange::payload() {
  return body_.payload(input_body(), shard_.body_scratch());
}

// Whether the model that the request names, or does not name, can be served here.
void Exchange::check_model() {
  if (facts_.model_field == RequestFacts::Model::kNamed && !facts_.model.empty()) {
    if (shard_.options().forward_unknown_model) return make_ids();
    if (shard_.model_state(facts_.model) != ModelState::kUnknown) return make_ids();
    return check_model_again();
  }
  // A body that does not parse gets the engine's own answer.
  const bool names_none = facts_.model_field == RequestFacts::Model::kAbsent ||
                          facts_.model_field == RequestFacts::Model::kNull;
  if (rule_.needs_model && names_none && facts_.parsed && shard_.models_served() > 1) {
    return reply_own({.status = 400,
                      .type = "invalid_request_error",
                      .message = "several models are served here; name one in `model`",
                      .kind = "no_model",
                      .param = "model"});
  }
  make_ids();
}

// A model may have been loaded since the lists were read.
void Exchange::check_model_again() {
  if (!shard_.deps().refresh_models) return refuse_model();
  wait(Wait::kModels, kModelsWait);
  client_->want_read();
  ticket_ = shard_.next_ticket();
  shard_.deps().refresh_models(
      shard_.reactor(),
      [shard = &shard_, client = IntrusivePtr<ClientConnection>(client_), ticket = ticket_] {
        Exchange* const exchange = client->exchange();
        if (exchange == nullptr || exchange->ticket_ != ticket) return;
        exchange->ticket_ = 0;
        exchange->timer_.cancel();
        if (shard->model_state(exchange->facts_.model) == ModelState::kUnknown) {
          return exchange->refuse_model();
        }
        exchange->make_ids();
      });
}

// --- the prompt's ids, where making them takes long ----------------------------------------------

void Exchange::make_ids() {
  if (!token_job_) return prompt_known();
  if (!shard_.make_ids(token_job_, *this)) return go_on_without_ids("busy");
  wait(Wait::kIds, kIdsWait);
  client_->want_read();
}

void Exchange::on_ids() {
  const IntrusivePtr<ClientConnection> alive(client_);
  timer_.cancel();
  const std::shared_ptr<TokenJob> job = std::exchange(token_job_, nullptr);
  job->waiter = nullptr;
  if (!job->prompt.failure.empty()) return go_on_without_ids(job->prompt.failure);
  const std::string_view body = payload();
  shard_.request_reader().adopt(job->prompt, rule_.api, body, body.size() + kReadPadding, facts_);
  prompt_known();
}

void Exchange::go_on_without_ids(std::string_view why) {
  drop_token_job();
  const std::string_view body = payload();
  shard_.request_reader().read_as_text(rule_.api, body, body.size() + kReadPadding,
                                       session_header(), shard_.shared().needs, why, facts_);
  prompt_known();
}

// Nobody waits for them any more.
void Exchange::drop_token_job() {
  if (!token_job_) return;
  token_job_->waiter = nullptr;
  token_job_->cancelled.store(true, std::memory_order_relaxed);
  token_job_.reset();
}

// All is known that the choice asks for.
void Exchange::prompt_known() {
  ProxyMetrics::Shard& metrics = shard_.metrics();
  if (!facts_.no_ids.empty()) {
    metrics.prompts_without_ids.add(facts_.no_ids);
  } else if (facts_.encoded_bytes + facts_.known_bytes > 0) {
    metrics.prompts_with_ids.add();
    metrics.prompt_bytes_encoded.add(facts_.encoded_bytes);
    metrics.prompt_bytes_known.add(facts_.known_bytes);
  }
  choose();
}

void Exchange::choose() {
  const FleetView& view = shard_.view();
  const TimePoint now = shard_.reactor().now();
  if (tries_ == 0 && shard_.decision_log() != nullptr) {
    logged_ = shard_.decision_log()->takes(facts_.session_key);
  }
  Decision decision = shard_.deps().router.with(
      [&](Router& router) { return router.decide(facts_.features(), view, failed_, now); });
  switch (decision.verdict) {
    case Decision::Verdict::kSend:
      break;
    case Decision::Verdict::kWait:
      return reply_own({.status = 429,
                        .type = "rate_limit_error",
                        .message = "the admission limit is reached",
                        .kind = "admission",
                        .retry_after_s = 1});
    case Decision::Verdict::kReject:
      if (tries_ > 0) return give_up();
      return refuse_unserved();
  }
  charge_ = std::move(decision.charge);
  replica_ = decision.order[0];
  pool_ = decision.pool;
  reason_ = decision.reason;
  pinned_ = decision.reason == Reason::kPinned;
  predicted_cached_ = decision.predicted_cached_tokens;
  tried_at_ = now;
  ++tries_;
  stale_resent_ = false;
  shard_.exchange_active(*this);
  // The client's leaving is noticed from here on.
  client_->want_read();
  connect();
}

// --- the request's place in the input ------------------------------------------------------------

bool Exchange::request_consumed() const {
  return body_.complete() && !body_.bad() && !input_overrun_ && body_.excess().empty();
}

std::size_t Exchange::consumed_input() const {
  if (!has_request_) return 0;
  const std::size_t whole = client_->input().bytes().size();
  // A body moves when the input is full: the whole of it was this request's.
  return body_.moved() ? whole : std::min(whole, request_parser_.head().size() + body_.seen());
}

std::string_view Exchange::request_id() const {
  return request_id_;
}

// --- the client's side ---------------------------------------------------------------------------

void Exchange::on_client_drained() {
  if (upstream_ && state_ != State::kConnecting) await_more();
}

void Exchange::on_client_gone() {
  if (state_ == State::kTunnel) return finish(ClientConnection::Ending::kClose);
  if (status_ == 0) status_ = 499;
  if (head_sent_) shard_.metrics().cut(CutReason::kClientGone);
  error_word_ = "client_gone";
  release_charge(Feedback::Event::kCancelled);
  finish(ClientConnection::Ending::kReset);
}

void Exchange::on_client_stalled() {
  shard_.metrics().cut(CutReason::kClientStalled);
  error_word_ = "client_stalled";
  release_charge(Feedback::Event::kCancelled);
  finish(ClientConnection::Ending::kReset);
}

void Exchange::cut_for_shutdown() {
  const IntrusivePtr<ClientConnection> alive(client_);
  cut(CutReason::kShutdown, ErrorKind::kInternal, "the router is shutting down");
}

// --- the end -------------------------------------------------------------------------------------

void Exchange::release_charge(Feedback::Event event) {
  if (charge_.held()) release_charge(event, shard_.reactor().now());
}

void Exchange::release_charge(Feedback::Event event, TimePoint now) {
  if (!charge_.held()) return;
  using Outcomes = ProxyMetrics::ReplicaOutcome;
  const Outcome outcome{event, observer_.prompt_tokens(), observer_.cached_tokens()};
  shard_.deps().router.with(
      [&](Router& router) { router.finished(std::move(charge_), outcome, now); });
  shard_.deps().metrics.replica_try_ended(
      replica_, event == Feedback::Event::kFinished ? Outcomes::kFinished
                : event == Feedback::Event::kFailed ? Outcomes::kFailed
                                                    : Outcomes::kCancelled);
}

void Exchange::finish(ClientConnection::Ending ending) {
  finish(ending, shard_.reactor().now());
}

void Exchange::finish(ClientConnection::Ending ending, TimePoint now) {
  release_charge(Feedback::Event::kCancelled, now);
  key_.give_back();
  drop_token_job();
  drop_upstream();
  state_ = State::kDone;
  shard_.metrics().request_ended(status_, now - started_);
  if (shard_.access_log() != nullptr && rule_.action != PathAction::kAlive &&
      rule_.action != PathAction::kReady) {
    write_log(now);
  }
  if (logged_) log_decision(now);
  ClientConnection& client = *client_;
  const std::size_t consumed = consumed_input();
  client.exchange_ended(ending, consumed);
}

void Exchange::note_length(bool stream, TimePoint now) {
  ProxyMetrics::Shard& metrics = shard_.metrics();
  (stream ? metrics.longest_stream : metrics.longest_plain).observe(now - tried_at_);
}

void Exchange::on_timeout() {
  const IntrusivePtr<ClientConnection> alive(client_);
  switch (waiting_for_) {
    case Wait::kModels:
      ticket_ = 0;
      return refuse_model();
    case Wait::kIds:
      return go_on_without_ids("late");
    case Wait::kConnect: {
      return try_failed(RetryReason::kConnectTimeout, RequestFailure::kConnection);
    }
    case Wait::kUpload:
    case Wait::kFirstByte:
    case Wait::kGap:
      break;
  }
  shard_.deps().fleet.request_failed(replica_, RequestFailure::kConnection);
  // At least as long as the limit: whoever looks at the longest answers sees that it is too low.
  note_length(facts_.stream, shard_.reactor().now());
  const bool gap = waiting_for_ == Wait::kGap;
  release_charge(Feedback::Event::kFailed);
  if (head_sent_) {
    return cut(CutReason::kUpstreamGap, ErrorKind::kTimeout, "the replica was silent for too long");
  }
  reply_own({.status = 504,
             .type = traits(ErrorKind::kTimeout).openai_type,
             .message = "the replica was silent for too long",
             .kind = gap ? "gap_timeout" : "first_byte_timeout"});
}

}  // namespace pointsman
