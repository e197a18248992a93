// The part of the exchange that takes a replica's answer and passes it on.

#include <optional>
#include <utility>

#include "base/ascii.h"
#include "http/head_writer.h"
#include "http/openai_error.h"
#include "proxy/exchange.h"
#include "proxy/proxy_shard.h"

namespace pointsman {
namespace {

// What a stream of minutes may keep of its prompt.
constexpr std::size_t kFewBlocks = 256;

// Of a stream whose head has gone out, after `head_hold`.
constexpr std::string_view kEmptyStream = "the replica ended the stream without an event";

constexpr std::string_view kDrainingText = "cannot schedule new futures";

// An answer's status as a reason to try elsewhere. 500 is one only with the text that says that
// the engine shuts down.
std::optional<RetryReason> retry_reason(int status) {
  switch (status) {
    case 429:
      return RetryReason::kTooMany;
    case 500:
      return RetryReason::kDraining;
    case 502:
      return RetryReason::kBadGateway;
    case 503:
      return RetryReason::kUnavailable;
    default:
      return std::nullopt;
  }
}

}  // namespace

// --- the head ------------------------------------------------------------------------------------

void Exchange::on_response_bytes(std::string_view in) {
  if (state_ == State::kTunnel) {
    forward(in);
    return await_more();
  }
  if (response_parser_.head().size() > 0) return take_body(in);

  // The head is read where it lies; what is not whole, or has to wait, moves to memory of its own.
  const bool kept = !response_head_.empty();
  if (kept) response_head_ += in;
  std::string_view bytes = kept ? std::string_view(response_head_) : in;
  for (;;) {
    const HeadResult head = response_parser_.parse(bytes);
    if (head.status == HeadResult::kNeedMore) {
      if (!kept) {
        response_head_ = bytes;
      } else if (bytes.size() < response_head_.size()) {
        response_head_.erase(0, response_head_.size() - bytes.size());
      }
      return await_more();
    }
    if (head.status == HeadResult::kBad) return bad_answer(head.reason);
    if (!response_parser_.head().interim()) break;
    pass_interim_on();
    bytes.remove_prefix(head.size);
    response_parser_.reset();
  }
  const std::size_t size = response_parser_.head().size();
  const std::string_view rest = bytes.substr(size);
  if (!kept) return on_response_head(bytes.substr(0, size), rest);
  // The head stays; the rest goes on from a place that does not move.
  std::string body(rest);
  response_head_.assign(bytes.substr(0, size));
  response_parser_.head().rebase(response_head_.data());
  on_response_head(response_head_, body);
}

// Heads before the final one go on (RFC 9110, 15.2) to clients that know them: HTTP/1.0 does not.
// `100 Continue` does not go on: whoever waits for it had it from here. They promise nothing of the
// answer, which may still come from another replica.
void Exchange::pass_interim_on() {
  const ResponseHead& head = response_parser_.head();
  if (http10_ || head.status() == 100) return;
  std::string& out = shard_.scratch();
  write_response_head(head, {}, out);
  client_->send(out);
}

void Exchange::on_response_head(std::string_view head_bytes, std::string_view rest) {
  ResponseHead& head = response_parser_.head();
  const int status = head.status();
  if (status == 101) {
    // What follows is no HTTP that we could pass on.
    if (!iequals(head.upgrade(), "websocket") ||
        !iequals(request_parser_.head().upgrade(), "websocket")) {
      return bad_answer("a switch to another protocol that nobody asked for");
    }
    // Where the request's last byte is not known, neither is the tunnel's first (RFC 9110, 7.8).
    if (!fully_sent_ || !request_consumed()) {
      return bad_answer("a switch to another protocol before the request's end");
    }
    return start_tunnel(rest);
  }

  if (shard_.deps().orca_report) {
    if (const auto report = head.find("endpoint-load-metrics")) {
      shard_.deps().orca_report(replica_, *report);
    }
  }
  const BodyKind kind = head.body_kind(method_);
  const bool good = status >= 200 && status < 300;
  event_stream_ = good && kind != BodyKind::kNone && head.event_stream();
  const std::string_view coding = head.content_encoding();
  const bool compressed = !coding.empty() && !iequals(coding, "identity");
  response_body_.start(kind, head.content_length().value_or(0), http10_);
  // A stream in another form than events is not looked into.
  observer_.start(good ? rule_.api : Api::kOther, event_stream_,
                  compressed || (facts_.stream && !event_stream_));
  reuse_upstream_ = head.keep_alive() && kind != BodyKind::kUntilClose;

  if (event_stream_) {
    hold_ = Hold::kEventStream;
    shard_.arm(hold_timer_, shard_.options().timeouts.head_hold);
  } else if (may_be_retried(status)) {
    hold_ = Hold::kRetryable;
    shard_.arm(hold_timer_, shard_.options().timeouts.error_body);
  } else {
    hold_ = Hold::kNone;
  }
  if (hold_ != Hold::kNone && response_head_.empty()) {
    response_head_ = head_bytes;
    head.rebase(response_head_.data());
  }
  take_body(rest);
}

bool Exchange::may_be_retried(int status) {
  if (!retry_reason(status)) return false;
  const RetrySituation situation = {.failure = *retry_reason(status),
                                    .retries = retries_,
                                    .retries_after_sent = retries_after_sent_,
                                    .fully_sent = fully_sent_,
                                    .body_whole = body_.held(),
                                    .stateless = rule_.stateless,
                                    .other_candidate = another_candidate()};
  return judge_retry(situation, shard_.options().retry).verdict == RetryVerdict::kRetry;
}

// --- the body ------------------------------------------------------------------------------------

// What has come at once counts as having come at one time, however many chunks it is in. `outputs`:
// how many events of output ended in it.
void Exchange::observed(int outputs) {
  if (!event_stream_ && !facts_.stream) {
    if (rule_.api == Api::kOther && !first_token_seen_ && answer_is_good()) first_byte_of_other();
    return;
  }
  if (observer_.response_id() != 0 && !response_learnt_) learn_response(shard_.reactor().now());
  if (!observer_.first_token()) return;
  if (event_stream_) output_events_ += static_cast<std::uint32_t>(outputs);
  const TimePoint now = shard_.reactor().now();
  if (!first_token_seen_) {
    if (!answer_is_good()) return;  // an error shows nothing of how fast the replica computes
    first_token_seen_ = true;
    first_token_at_ = last_output_at_ = now;
    if (event_stream_) {
      shard_.metrics().ttft.observe(now - started_);
      shard_.deps().metrics.replica_ttft(replica_, now - tried_at_, now);
    }
    shard_.deps().router.with([&](Router& router) { router.first_token(charge_, now); });
    return;
  }
  if (outputs == 0 || !event_stream_) return;
  const Duration each = (now - last_output_at_) / outputs;
  shard_.metrics().itl.observe(each, static_cast<std::uint64_t>(outputs));
  last_output_at_ = now;
}

bool Exchange::answer_is_good() const {
  const int status = response_parser_.head().status();
  return status >= 200 && status < 300;
}

// Of an answer that is not understood, its first byte stands for its first token: speech or a
// tunnel goes on for long after its prompt has been computed.
void Exchange::first_byte_of_other() {
  first_token_seen_ = true;
  const TimePoint now = shard_.reactor().now();
  shard_.deps().router.with([&](Router& router) { router.first_token(charge_, now); });
}

// A later request that continues this response has to find its replica.
void Exchange::learn_response(TimePoint now) {
  response_learnt_ = true;
  shard_.deps().router.with(
      [&](Router& router) { router.learn_response(observer_.response_id(), replica_, now); });
}

// A whole answer has said how many tokens the prompt had and it has itself.
void Exchange::learn_usage() {
  ModelEstimates& estimates = shard_.shared().estimates;
  ProxyMetrics::Shard& metrics = shard_.metrics();
  if (const auto tokens = observer_.prompt_tokens()) {
    const bool exact = facts_.exact_tokens;
    (exact ? metrics.prompts_by_ids : metrics.prompts_by_text).add(facts_.prompt_tokens, *tokens);
    if (facts_.text_bytes > 0) estimates.learn_prompt(facts_.model, facts_.text_bytes, *tokens);
  }
  if (const auto tokens = observer_.output_tokens()) {
    if (facts_.expected_output_tokens > 0) {
      metrics.outputs.add(facts_.expected_output_tokens, *tokens);
    }
    estimates.learn_output(facts_.model, *tokens, facts_.max_output_tokens);
  }
}

void Exchange::take_body(std::string_view in) {
  int outputs = 0;
  bool any = false;
  const ResponseBody::Taken taken =
      response_body_.take(in, shard_.body_scratch(), [&](std::string_view payload) {
        outputs += observer_.take(payload, shard_.answer_reader());
        any = true;
      });
  if (any) observed(outputs);
  if (taken.consumed < in.size()) reuse_upstream_ = false;
  if (response_body_.bad()) {
    if (head_sent_) {
      forward(taken.forward);
      return lose_answer("the replica's answer is malformed");
    }
    return bad_answer("the body's chunk framing is broken");
  }
  // A stream without a byte is a loss, whatever its framing says.
  const bool empty_stream =
      event_stream_ && response_body_.done() && response_body_.payload_bytes() == 0;
  // Before the last bytes go: a client that has them may ask again at once.
  if (response_body_.done() && !empty_stream && hold_ != Hold::kRetryable) key_.give_back();
  switch (hold_) {
    case Hold::kNone:
      if (head_sent_) {
        if (empty_stream) return lose_answer(kEmptyStream);
        forward(taken.forward);
      } else {
        send_head_and(taken.forward);
      }
      break;
    case Hold::kEventStream:
      held_ += taken.forward;
      if (response_body_.payload_bytes() > 0) {
        send_head_and({});
      } else if (empty_stream) {
        return try_failed(RetryReason::kLost, RequestFailure::kConnection);
      }
      break;
    case Hold::kRetryable:
      held_ += taken.forward;
      if (held_.size() > shard_.options().limits.held_answer) {
        send_head_and({});
      } else if (response_body_.done()) {
        return retry_answer();
      }
      break;
  }
  if (response_body_.done()) return complete();
  await_more();
}

// Whether the client's connection can be used again after the answer.
bool Exchange::write_client_head(std::string& out) {
  return write_response_head(
      response_parser_.head(),
      {.request_id = request_id(),
       .body = response_body_.kind(),
       .http10 = http10_,
       // An early answer does not wait for the rest of its request.
       .keep_alive = keep_alive_ && request_consumed() && !shard_.closing_idle(),
       .extra = {}},
      out);
}

// Sends the head, what was held of the body, and `body`.
void Exchange::send_head_and(std::string_view body) {
  hold_ = Hold::kNone;
  hold_timer_.cancel();
  std::string& out = shard_.scratch();
  client_keeps_ = write_client_head(out);
  head_sent_ = true;
  status_ = response_parser_.head().status();
  state_ = State::kRelaying;
  if (!held_.empty()) {
    out += held_;
    response_bytes_ += held_.size();
    std::string().swap(held_);
  }
  response_bytes_ += body.size();
  client_->send(out, body);
  if (fully_sent_) drop_request();
}

// Nothing of the request is needed any more: no retry follows. Streams go on for minutes.
void Exchange::drop_request() {
  if (!has_request_) return;
  if (!body_.excess().empty()) input_overrun_ = true;
  client_->input().consume(consumed_input());
  client_->input().release_if_empty();
  has_request_ = false;
  body_.release_memory();
  if (!event_stream_ || facts_.blocks.capacity() <= kFewBlocks) return;
  // The decision log is told of them at the end.
  if (logged_ && facts_.blocks.size() <= DecisionLog::kMostBlocks) return;
  std::vector<BlockHash> kept;
  if (logged_) kept.assign(facts_.blocks.begin(), facts_.blocks.begin() + DecisionLog::kMostBlocks);
  facts_.blocks.swap(kept);
}

void Exchange::forward(std::string_view bytes) {
  if (bytes.empty()) return;
  response_bytes_ += bytes.size();
  client_->send(bytes);
}

// After each step of the answer: the next bytes, unless the client has to take what it has first.
void Exchange::await_more() {
  if (client_->broken()) return on_client_gone();
  if (client_->blocked()) {
    // The client's own limit runs now; the replica cannot be blamed for silence.
    timer_.cancel();
    return;
  }
  const bool relaying = state_ == State::kRelaying || hold_ == Hold::kRetryable;
  if (state_ == State::kTunnel) {
    timer_.cancel();
  } else if (relaying && (fully_sent_ || send_broken_)) {
    // A stream whose head went out before its first byte is still in its first wait.
    const bool waits_for_first = event_stream_ && response_body_.payload_bytes() == 0;
    if (!waits_for_first || !timer_.armed()) wait(Wait::kGap, shard_.options().timeouts.gap);
  } else if (fully_sent_ && !timer_.armed()) {
    // The client was blocked by an interim answer.
    await_first_byte();
  } else if (relaying && timer_.armed()) {
    // It answers before it has the whole request: the silence is that of both directions.
    wait(Wait::kUpload, shard_.options().timeouts.gap);
  }
  upstream_->stream().want_read();
}

void Exchange::on_head_hold_over() {
  const IntrusivePtr<ClientConnection> alive(client_);
  switch (hold_) {
    case Hold::kNone:
      return;
    case Hold::kRetryable:
      return retry_part_of_answer();
    case Hold::kEventStream:
      break;
  }
  send_head_and({});
  if (client_->broken()) on_client_gone();
}

// --- the end -------------------------------------------------------------------------------------

void Exchange::complete() {
  timer_.cancel();
  if (hold_ == Hold::kRetryable) return retry_answer();
  if (hold_ == Hold::kEventStream || !head_sent_) {
    return try_failed(RetryReason::kLost, RequestFailure::kConnection);
  }
  if (event_stream_ && response_body_.payload_bytes() == 0) return lose_answer(kEmptyStream);
  observer_.end(shard_.answer_reader());
  const int status = status_;
  const TimePoint now = shard_.reactor().now();
  note_length(event_stream_, now);
  Fleet& fleet = shard_.deps().fleet;
  if (status >= 500 && status != 503) {
    fleet.request_failed(replica_, RequestFailure::kServerError);
  } else if (status < 400) {
    fleet.request_succeeded(replica_);
    shard_.deps().activity.completed(replica_, now);
  }
  if (observer_.response_id() != 0 && !response_learnt_) learn_response(now);
  if (status < 400) learn_usage();
  shard_.metrics().response_bytes.add(response_bytes_);
  release_charge(status >= 500 ? Feedback::Event::kFailed : Feedback::Event::kFinished, now);
  keep_upstream();
  if (!request_consumed()) client_keeps_ = false;
  finish(client_keeps_ ? ClientConnection::Ending::kKeep : ClientConnection::Ending::kClose, now);
}

void Exchange::keep_upstream() {
  if (!reuse_upstream_ || !fully_sent_ || !upstream_) return;
  upstream_->stream().detach();
  shard_.upstreams().keep(std::move(upstream_));
}

// An answer that says "not here" is complete and held: another replica is asked, and should that
// come to nothing, this answer is the client's.
void Exchange::retry_answer() {
  const int status = response_parser_.head().status();
  const bool draining = status == 500 && held_.find(kDrainingText) != std::string::npos;
  if (status == 500 && !draining) {
    send_head_and({});
    return complete();
  }
  saved_answer_.clear();
  saved_keeps_ = write_client_head(saved_answer_);
  saved_answer_ += held_;
  saved_status_ = status;
  report_unwilling(status, draining);
  hold_ = Hold::kNone;
  keep_upstream();
  judge_and_retry(*retry_reason(status));
}

// The body of an answer that says "not here" does not come in time. Its status has said enough:
// where another try may be made, it is, and what came of this answer is lost. Otherwise it is the
// client's, as it comes.
void Exchange::retry_part_of_answer() {
  const int status = response_parser_.head().status();
  const bool draining = status == 500 && held_.find(kDrainingText) != std::string::npos;
  const bool allowed = (status != 500 || draining) && may_be_retried(status) &&
                       shard_.shared().retry_budget.has_room(shard_.reactor().now());
  if (!allowed) {
    send_head_and({});
    if (client_->broken()) on_client_gone();
    return;
  }
  report_unwilling(status, draining);
  judge_and_retry(*retry_reason(status));
}

void Exchange::report_unwilling(int status, bool draining) {
  if (draining) {
    shard_.deps().fleet.request_found_draining(replica_);
  } else if (status == 502) {
    shard_.deps().fleet.request_failed(replica_, RequestFailure::kServerError);
  }
}

// An answer that has begun ends early by its replica's fault.
void Exchange::lose_answer(std::string_view message) {
  shard_.deps().fleet.request_failed(replica_, RequestFailure::kConnection);
  cut(CutReason::kUpstreamLost, ErrorKind::kFault, message);
}

// Ends an answer that cannot be finished, so that the client cannot take it for a whole one.
void Exchange::cut(CutReason reason, ErrorKind kind, std::string_view message) {
  shard_.metrics().cut(reason);
  const bool shutdown = reason == CutReason::kShutdown;
  const OwnError error = {.status = shutdown ? 503 : traits(kind).http_status,
                          .type = traits(kind).openai_type,
                          .message = message,
                          .kind = label(reason)};
  error_word_ = label(reason);
  release_charge(shutdown ? Feedback::Event::kCancelled : Feedback::Event::kFailed);
  if (state_ == State::kTunnel) return finish(ClientConnection::Ending::kClose);
  if (!head_sent_) return reply_own(error);
  bool told = false;
  if (event_stream_ && response_body_.may_insert() && observer_.may_insert_event()) {
    std::string event;
    append_error_event(rule_.api, error, event);
    if (response_body_.chunks_shown()) {
      std::string chunk;
      append_chunk(chunk, event);
      forward(chunk);
    } else {
      forward(event);
    }
    told = true;
  }
  // A plain close ends a body that is delimited by it: only a reset shows that something is
  // missing.
  const bool close_shows =
      response_body_.kind() == BodyKind::kLength || response_body_.chunks_shown() || told;
  finish(close_shows ? ClientConnection::Ending::kClose : ClientConnection::Ending::kReset);
}

// --- the tunnel ----------------------------------------------------------------------------------

// The replica has agreed to another protocol: from here on bytes go both ways as they come, with no
// time-out, and the end of either side is the end of the other.
void Exchange::start_tunnel(std::string_view rest) {
  hold_ = Hold::kNone;
  timer_.cancel();
  hold_timer_.cancel();
  send_head_and({});
  state_ = State::kTunnel;
  reuse_upstream_ = false;
  client_keeps_ = false;
  shard_.metrics().upgrades.add();
  drop_request();
  first_byte_of_other();
  if (!rest.empty()) forward(rest);
  // What the client sent behind its request belongs to the new protocol.
  InputBuffer& input = client_->input();
  tunnel_unsent_ = input.bytes();
  input.consume(input.bytes().size());
  tunnel_to_upstream();
  if (state_ == State::kTunnel) await_more();
}

void Exchange::tunnel_from_client() {
  if (!tunnel_unsent_.empty()) return;
  char* const buffer = shard_.read_buffer();
  const IoResult got = client_->stream().read(buffer, ProxyShard::kReadBuffer);
  if (!client_sent(got)) return;
  tunnel_unsent_.assign(buffer, got.bytes);
  tunnel_to_upstream();
}

void Exchange::tunnel_to_upstream() {
  if (!tunnel_unsent_.empty()) {
    const IoResult sent = upstream_->stream().write(tunnel_unsent_);
    if (sent.status == IoResult::Status::kError) {
      return finish(ClientConnection::Ending::kClose);
    }
    tunnel_unsent_.erase(0, sent.bytes);
    if (!tunnel_unsent_.empty()) return upstream_->stream().want_write();
  }
  client_->want_read();
}

}  // namespace pointsman
