// The part of the exchange that sends a request to one replica, and judges what to do when that
// fails.

#include <algorithm>
#include <cerrno>
#include <utility>

#include "http/head_writer.h"
#include "http/openai_error.h"
#include "net/own_lack.h"
#include "net/tls_error.h"
#include "proxy/exchange.h"
#include "proxy/proxy_shard.h"

namespace pointsman {
namespace {

// What a client is told when no replica is left to try.
struct GivingUp {
  std::string_view kind;
  std::string_view message;
};

GivingUp giving_up(RetryReason reason) {
  switch (reason) {
    case RetryReason::kRefused:
      return {"connection_refused", "the replica refused the connection"};
    case RetryReason::kConnectTimeout:
      return {"connect_timeout", "the replica could not be reached in time"};
    case RetryReason::kLost:
      return {"connection_lost", "the replica closed the connection before it answered"};
    case RetryReason::kBadAnswer:
      return {"bad_answer", "the replica's answer is not valid HTTP"};
    case RetryReason::kBadGateway:
    case RetryReason::kUnavailable:
    case RetryReason::kTooMany:
    case RetryReason::kDraining:
      break;
  }
  return {"upstream_error", "the replica could not serve the request"};
}

GivingUp giving_up_tls() {
  return {"tls_failed", "the replica could not be spoken to by TLS"};
}

}  // namespace

void Exchange::connect() {
  state_ = State::kConnecting;
  upstream_unsent_.clear();
  upstream_unsent_at_ = body_sent_ = 0;
  fully_sent_ = pumping_ = send_broken_ = any_byte_ = false;
  // A request that has failed as stale goes over a new connection: other kept ones are as old. So
  // does one that could not be sent again should a kept one prove to be stale.
  if (!stale_resent_ && body_.held()) upstream_ = shard_.upstreams().take(replica_);
  if (upstream_) {
    shard_.metrics().upstream_connections_reused.add();
    upstream_->stream().attach(*this);
    return send_request();
  }
  const ReplicaTarget& target = shard_.target(replica_);
  if (!target.spec) return try_failed(RetryReason::kRefused, std::nullopt);
  const ReplicaSpec& spec = *target.spec;
  Resolver& resolver = shard_.deps().resolver;
  if (const std::optional<Resolver::Endpoints> known = resolver.cached(spec.host, spec.port)) {
    return connect_to(*known);
  }
  wait(Wait::kConnect, shard_.options().timeouts.connect);
  ticket_ = shard_.next_ticket();
  resolver.resolve(shard_.reactor(), spec.host, spec.port,
                   [client = IntrusivePtr<ClientConnection>(client_),
                    ticket = ticket_](const Result<Resolver::Endpoints>& found) {
                     Exchange* const exchange = client->exchange();
                     if (exchange == nullptr || exchange->ticket_ != ticket) return;
                     exchange->ticket_ = 0;
                     if (found.ok()) return exchange->connect_to(found.value());
                     exchange->try_failed(RetryReason::kRefused, RequestFailure::kConnection);
                   });
}

void Exchange::connect_to(Resolver::Endpoints addresses) {
  addresses_ = std::move(addresses);
  next_address_ = 0;
  connect_error_.clear();
  wait(Wait::kConnect, shard_.options().timeouts.connect);
  connect_to_next();
}

// A name may have addresses at which its replica does not listen: `localhost` is often ::1 and
// 127.0.0.1. All are tried in their order, within one limit.
void Exchange::connect_to_next() {
  while (next_address_ < addresses_.size()) {
    std::error_code error;
    const ReplicaTarget& target = shard_.target(replica_);
    if (!target.spec) return try_failed(RetryReason::kRefused, std::nullopt);
    upstream_ = shard_.upstreams().open(replica_, addresses_[next_address_++], error,
                                        {target.spec->tls, target.spec->tls_name});
    if (upstream_) {
      shard_.metrics().upstream_connections_opened.add();
      upstream_->stream().attach(*this);
      return upstream_->stream().want_write();
    }
    note_connect_error(error);
  }
  if (is_own_lack(connect_error_)) {
    return reply_own({.status = 503,
                      .type = traits(ErrorKind::kInternal).openai_type,
                      .message = "the router has no descriptor or port left",
                      .kind = "out_of_descriptors",
                      .retry_after_s = 1});
  }
  const int error = connect_error_.value();
  const bool refused = error == ECONNREFUSED || error == ECONNRESET;
  try_failed(RetryReason::kRefused,
             refused ? RequestFailure::kRefused : RequestFailure::kConnection);
}

// What another side said counts for more than what this one lacks: an address of a protocol that
// this machine does not have looks like a lack of ports.
void Exchange::note_connect_error(const std::error_code& error) {
  if (!connect_error_ || !is_own_lack(error)) connect_error_ = error;
}

void Exchange::on_connected() {
  const std::error_code error = upstream_->connect_error();
  if (!error) return send_request();
  note_connect_error(error);
  if (error.category() == tls_category()) shard_.tls_failed(replica_, error);
  drop_upstream();
  connect_to_next();
}

void Exchange::send_request() {
  state_ = State::kAwaiting;
  sent_at_ = shard_.reactor().now();
  const ReplicaTarget& target = shard_.target(replica_);
  if (!target.spec) return try_failed(RetryReason::kRefused, std::nullopt);
  std::string& head = shard_.scratch();
  write_request_head(request_parser_.head(),
                     {.authority = target.spec->authority,
                      .path_prefix = target.spec->path_prefix,
                      .request_id = request_id(),
                      .authorization = target.authorization,
                      .drop_keys = shard_.deps().keys != nullptr && !shard_.options().pass_keys},
                     head);
  const std::string_view body = body_.raw(input_body());
  const IoResult sent = upstream_->stream().write(head, body);
  if (sent.status == IoResult::Status::kError) {
    send_broken_ = true;
    upstream_->stream().want_read();
    return wait(Wait::kFirstByte, shard_.options().timeouts.connect);
  }
  if (sent.bytes < head.size()) {
    upstream_unsent_.assign(head, sent.bytes);
  } else {
    body_sent_ = sent.bytes - head.size();
  }
  upstream_->stream().want_read();
  if (upstream_unsent_.empty() && body_sent_ == body.size()) return request_sent();
  wait(Wait::kUpload, shard_.options().timeouts.gap);
  upstream_->stream().want_write();
}

void Exchange::continue_sending() {
  const std::string_view head = std::string_view(upstream_unsent_).substr(upstream_unsent_at_);
  const std::string_view body =
      pumping_ ? std::string_view() : body_.raw(input_body()).substr(body_sent_);
  if (head.empty() && body.empty()) return;
  const IoResult sent =
      head.empty() ? upstream_->stream().write(body) : upstream_->stream().write(head, body);
  if (sent.status == IoResult::Status::kError) {
    // The replica may have answered before it closed: reading tells.
    send_broken_ = true;
    return;
  }
  const std::size_t of_head = std::min(sent.bytes, head.size());
  upstream_unsent_at_ += of_head;
  body_sent_ += sent.bytes - of_head;
  if (sent.bytes < head.size() + body.size()) {
    if (sent.bytes > 0 || !timer_.armed()) wait(Wait::kUpload, shard_.options().timeouts.gap);
    if (pumping_) client_->stream().want_end();
    return upstream_->stream().want_write();
  }
  upstream_unsent_.clear();
  upstream_unsent_at_ = 0;
  if (pumping_) {
    if (body_.complete()) return request_sent();
    // The next part is the client's to send: its own limit runs.
    timer_.cancel();
    expect_body();
    return client_->want_read();
  }
  request_sent();
}

// What was held has been sent: all of the request, or as much of it as was to be held.
void Exchange::request_sent() {
  if (!body_.complete()) {
    pumping_ = true;
    timer_.cancel();
    expect_body();
    return client_->want_read();
  }
  pumping_ = false;
  fully_sent_ = true;
  client_->want_read();
  if (state_ != State::kRelaying) return await_first_byte();
  if (!client_->blocked()) wait(Wait::kGap, shard_.options().timeouts.gap);
}

void Exchange::await_first_byte() {
  const ProxyTimeouts& timeouts = shard_.options().timeouts;
  wait(Wait::kFirstByte, facts_.stream ? timeouts.first_byte_stream : timeouts.first_byte_plain);
}

// Passes on the next part of a body that is not held. One part at a time: the client waits for the
// replica.
void Exchange::pump_body() {
  if (!upstream_unsent_.empty()) {
    // Told of the client's end while the replica has not taken the part before.
    if (client_->stream().ended()) on_client_gone();
    return;
  }
  char* const buffer = shard_.read_buffer();
  const IoResult got = client_->stream().read(buffer, ProxyShard::kReadBuffer);
  if (!client_sent(got)) return;
  body_came(got.bytes);
  const std::size_t taken = body_.follow({buffer, got.bytes});
  if (taken < got.bytes) input_overrun_ = true;
  shard_.metrics().request_bytes.add(taken);
  if (body_.bad() || body_too_large()) {
    if (head_sent_) return on_client_gone();
    return body_.bad() ? refuse_bad_body() : refuse_body();
  }
  client_->expect_body_within(Duration::zero());
  if (send_broken_) {
    // Nobody takes it; it is read so that the client comes to read the answer.
    if (!body_.complete()) client_->want_read();
    return;
  }
  upstream_unsent_.assign(buffer, taken);
  upstream_unsent_at_ = 0;
  continue_sending();
}

void Exchange::on_writable() {
  const IntrusivePtr<ClientConnection> alive(client_);
  if (!upstream_) return;
  switch (state_) {
    case State::kConnecting:
      return on_connected();
    case State::kAwaiting:
    case State::kRelaying:
      if (!send_broken_) continue_sending();
      return;
    case State::kTunnel:
      return tunnel_to_upstream();
    case State::kReading:
    case State::kChoosing:
    case State::kDone:
      return;
  }
}

// Asks for the memory that passing on a piece of the answer will touch, all of it at once and
// before the system call that fetches the piece: one after the other, these waits would cost as
// much as the work itself.
void Exchange::call_for_relay() const {
  constexpr std::size_t kLine = 64;
  const auto* const end = reinterpret_cast<const char*>(&observer_ + 1);
  for (const auto* at = reinterpret_cast<const char*>(&state_); at < end; at += kLine) {
    __builtin_prefetch(at, /*write=*/1);
  }
  __builtin_prefetch(&response_parser_.head());
  __builtin_prefetch(&client_->stream(), /*write=*/1);
}

void Exchange::on_readable() {
  const IntrusivePtr<ClientConnection> alive(client_);
  if (!upstream_ || state_ == State::kConnecting) return;
  // Read again when the client has taken what it has.
  if (client_->blocked()) return;
  call_for_relay();
  char* const buffer = shard_.read_buffer();
  const IoResult got = upstream_->stream().read(buffer, ProxyShard::kReadBuffer);
  switch (got.status) {
    case IoResult::Status::kOk:
      shard_.deps().activity.delivered(replica_, shard_.reactor().coarse_now());
      if (!any_byte_ && !upstream_->reused()) shard_.deps().fleet.connection_answered(replica_);
      any_byte_ = true;
      return on_response_bytes({buffer, got.bytes});
    case IoResult::Status::kWouldBlock:
      return upstream_->stream().want_read();
    case IoResult::Status::kEnd:
    case IoResult::Status::kError:
      return upstream_ended(got.error);
  }
}

// The connection has ended while something was still to come.
void Exchange::upstream_ended(const std::error_code& error) {
  if (state_ == State::kTunnel) {
    return finish(ClientConnection::Ending::kClose);
  }
  if (response_parser_.head().size() > 0 && !error && response_body_.complete_at_close()) {
    reuse_upstream_ = false;
    return complete();
  }
  // A kept connection may end without ceremony; an answer that its end delimits may not.
  if (error.category() == tls_category() &&
      (error != tls_truncated() || response_body_.complete_at_close())) {
    shard_.tls_failed(replica_, error);
  }
  const bool reset = error.value() == ECONNRESET;
  if (head_sent_) {
    return lose_answer("the replica's connection was lost");
  }
  if (!any_byte_ && upstream_->reused() && !stale_resent_ && body_.held() &&
      shard_.reactor().now() - sent_at_ <= shard_.options().timeouts.stale) {
    // The replica closed it just as the request was sent: nobody's fault.
    shard_.metrics().stale_resends.add();
    stale_resent_ = true;
    upstream_->stream().close();
    drop_upstream();
    return connect();
  }
  const RequestFailure fault = !any_byte_ && !upstream_->reused() && reset
                                   ? RequestFailure::kRefused
                                   : RequestFailure::kConnection;
  try_failed(RetryReason::kLost, fault);
}

void Exchange::on_replica_gone() {
  const IntrusivePtr<ClientConnection> alive(client_);
  if (head_sent_ || state_ == State::kTunnel) {
    return cut(CutReason::kReplicaGone, ErrorKind::kFault, "the replica is gone");
  }
  try_failed(state_ == State::kConnecting ? RetryReason::kRefused : RetryReason::kLost,
             std::nullopt);
}

void Exchange::drop_upstream() {
  upstream_.reset();
}

// The try is over without an answer. `report`: what the fleet is told of the replica, if anything.
void Exchange::try_failed(RetryReason reason, std::optional<RequestFailure> report) {
  if (report) shard_.deps().fleet.request_failed(replica_, *report);
  judge_and_retry(reason);
}

// What came as an answer is none, for a reason that does not go away (a fixed text).
void Exchange::bad_answer(std::string_view problem) {
  bad_answer_ = problem;
  try_failed(RetryReason::kBadAnswer, RequestFailure::kConnection);
}

void Exchange::judge_and_retry(RetryReason reason) {
  timer_.cancel();
  hold_timer_.cancel();
  ticket_ = 0;
  last_failure_ = reason;
  const bool was_sent = fully_sent_;
  const bool nothing_sent = state_ == State::kConnecting;
  release_charge(Feedback::Event::kFailed);
  drop_upstream();
  failed_.push_back(replica_);
  state_ = State::kChoosing;
  response_parser_.reset();
  response_head_.clear();
  held_.clear();
  hold_ = Hold::kNone;
  event_stream_ = first_token_seen_ = response_learnt_ = false;
  first_token_at_ = TimePoint{};
  output_events_ = 0;
  observer_.reset();

  const RetrySituation situation = {.failure = reason,
                                    .retries = retries_,
                                    .retries_after_sent = retries_after_sent_,
                                    .fully_sent = was_sent,
                                    .body_whole = body_.held() || nothing_sent,
                                    .stateless = rule_.stateless && !facts_.stored,
                                    .other_candidate = another_candidate()};
  const RetryJudgement judgement = judge_retry(situation, shard_.options().retry);
  if (judgement.verdict == RetryVerdict::kDenied) {
    shard_.metrics().retry_denied(judgement.why);
    return give_up();
  }
  const bool outside_budget = is_connection_failure(reason) && pool_serves();
  if (!outside_budget && !shard_.shared().retry_budget.take(shard_.reactor().now())) {
    shard_.metrics().retry_denied(RetryDenied::kBudget);
    return give_up();
  }
  ++retries_;
  if (is_loss(reason) && was_sent) ++retries_after_sent_;
  shard_.metrics().retried(reason);
  choose();
}

namespace {

bool contains(const std::vector<ReplicaIndex>& replicas, ReplicaIndex replica) {
  return std::find(replicas.begin(), replicas.end(), replica) != replicas.end();
}

}  // namespace

// A usable replica that serves the model and has not failed this request. A pinned request has none
// while the replica that holds its conversation is usable.
bool Exchange::another_candidate() {
  const FleetView& view = shard_.view();
  if (pinned_ && replica_ < view.replicas.size() && view.replicas[replica_].usable) return false;
  for (const PoolView& pool : view.pools) {
    for (const ReplicaIndex candidate : pool.candidates(facts_.model)) {
      if (!contains(failed_, candidate) && candidate != replica_) return true;
    }
  }
  return false;
}

// Another replica of the pool has answered a request lately: what failed is a replica, not the
// pool, and a retry there is no part of an avalanche.
bool Exchange::pool_serves() {
  const FleetView& view = shard_.view();
  if (replica_ >= view.replicas.size()) return false;
  const PoolIndex pool = view.replicas[replica_].pool;
  const TimePoint since = shard_.reactor().now() - shard_.options().retry.budget_window;
  for (ReplicaIndex other = 0; other < view.replicas.size(); ++other) {
    if (other == replica_ || view.replicas[other].pool != pool) continue;
    if (shard_.deps().activity.last_completed(other) >= since) return true;
  }
  return false;
}

// The last failure is the answer: as the replica gave it, or in our own words where it gave none.
void Exchange::give_up() {
  if (!saved_answer_.empty()) {
    key_.give_back();
    status_ = saved_status_;
    client_keeps_ = saved_keeps_ && request_consumed();
    client_->send(saved_answer_);
    response_bytes_ += saved_answer_.size();
    return finish(client_keeps_ ? ClientConnection::Ending::kKeep
                                : ClientConnection::Ending::kClose);
  }
  const bool tls =
      last_failure_ == RetryReason::kRefused && connect_error_.category() == tls_category();
  const GivingUp last = tls ? giving_up_tls() : giving_up(last_failure_);
  std::string message(last.message);
  if (last_failure_ == RetryReason::kBadAnswer) message.append(": ").append(bad_answer_);
  if (tls) message.append(": ").append(connect_error_.message());
  reply_own({.status = 502,
             .type = traits(ErrorKind::kFault).openai_type,
             .message = message,
             .kind = last.kind});
}

}  // namespace pointsman
