#include "proxy/client_connection.h"

#include <chrono>
#include <utility>

#include "http/openai_error.h"
#include "proxy/address_bytes.h"
#include "proxy/exchange.h"
#include "proxy/proxy_shard.h"

namespace pointsman {
namespace {

constexpr Duration kLinger = std::chrono::seconds(2);

}  // namespace

ClientConnection::ClientConnection(ProxyShard& shard, StreamPtr stream,
                                   const asio::ip::tcp::endpoint& client)
    : shard_(shard),
      stream_(std::move(stream)),
      client_(client),
      input_(shard.blocks()),
      timer_([this] { on_timeout(); }),
      stall_timer_([this] { on_stall(); }) {
  stream_->attach(*this);
}

ClientConnection::~ClientConnection() = default;

void ClientConnection::start() {
  shard_.arm(timer_, shard_.options().timeouts.client_idle);
  stream_->want_read();
}

std::string_view ClientConnection::client_address() {
  if (client_text_.empty()) client_text_ = client_.address().to_string();
  return client_text_;
}

bool ClientConnection::trusted() const {
  return shard_.shared().trusted.contains(address_bytes(client_.address()));
}

bool ClientConnection::last_request() const {
  const std::uint32_t limit = shard_.options().limits.requests_per_connection;
  return limit != 0 && requests_ >= limit;
}

void ClientConnection::on_readable() {
  const IntrusivePtr<ClientConnection> alive(this);
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kHead:
      return read_head();
    case Phase::kExchange:
      return exchange_->on_client_readable();
    case Phase::kLingering:
      return discard_input();
    case Phase::kFlushing:  // what comes now is looked at when everything is sent
    case Phase::kClosed:
      return;
  }
}

void ClientConnection::on_writable() {
  const IntrusivePtr<ClientConnection> alive(this);
  flush();
}

void ClientConnection::read_head() {
  input_.prepare();
  const IoResult got = stream_->read(input_.tail(), input_.room());
  switch (got.status) {
    case IoResult::Status::kWouldBlock:
      input_.release_if_empty();
      return stream_->want_read();
    case IoResult::Status::kEnd:
    case IoResult::Status::kError:
      return close_now();
    case IoResult::Status::kOk:
      break;
  }
  input_.added(got.bytes);
  process();
}

// Starts the exchanges of all requests that lie in the input whole, one after the other.
void ClientConnection::process() {
  if (processing_) return;
  processing_ = true;
  while ((phase_ == Phase::kIdle || phase_ == Phase::kHead) && !input_.empty()) {
    if (!parse_head()) break;
  }
  processing_ = false;
  if (phase_ == Phase::kIdle) await_request();
}

// Whether to go on with the next request.
bool ClientConnection::parse_head() {
  if (phase_ == Phase::kIdle) {
    phase_ = Phase::kHead;
    exchange_ = shard_.take_exchange();
    shard_.arm(timer_, shard_.options().timeouts.client_head);
    input_.prepare();
  }
  const HeadResult head = exchange_->parser().parse(input_.bytes());
  switch (head.status) {
    case HeadResult::kNeedMore:
      if (input_.room() == 0) {
        input_.reserve(std::min(kMaxHeadSize, input_.capacity() * 2) + 1);
      }
      stream_->want_read();
      return false;
    case HeadResult::kBad: {
      std::string_view kind = head.http_status == 431 ? "head_too_large" : "bad_head";
      if (head.reason == kTooManyHeaders) kind = "too_many_headers";
      refuse(head.http_status, kind, head.reason);
      return false;
    }
    case HeadResult::kDone:
      break;
  }
  timer_.cancel();
  phase_ = Phase::kExchange;
  ++requests_;
  if (last_request()) shard_.metrics().connections_used_up.add();
  exchange_->begin(*this);
  return true;
}

// An answer to something that is no request: the connection cannot be used any further.
void ClientConnection::refuse(int status, std::string_view kind, std::string_view reason) {
  const HeadLimits& limits = shard_.options().limits.head;
  std::string message(reason);
  if (status == 431) {
    message += " (limits.head is " + std::to_string(limits.max_size) + " bytes, limits.headers " +
               std::to_string(limits.max_headers) + ")";
  }
  release_exchange();
  timer_.cancel();
  phase_ = Phase::kExchange;
  std::string answer;
  const std::string_view request_id = shard_.next_request_id();
  append_error_response(
      {.status = status, .type = "invalid_request_error", .message = message, .kind = kind},
      request_id, false, false, answer);
  shard_.count_own_answer(status);
  shard_.metrics().own_errors.add(kind);
  if (shard_.access_log() != nullptr) {
    // Neither method nor path: what came is no request, and may hold a key anywhere.
    AccessRecord record;
    record.at = std::chrono::system_clock::now();
    record.client = client_address();
    record.request_id = request_id;
    record.error = kind;
    record.status = status;
    record.response_bytes = answer.size() - (answer.find("\r\n\r\n") + 4);
    shard_.access_log()->write(record);
  }
  send(answer);
  exchange_ended(Ending::kClose, input_.bytes().size());
}

void ClientConnection::send(std::string_view first, std::string_view second) {
  if (broken_ || phase_ == Phase::kClosed) return;
  if (!blocked()) {
    const IoResult sent = stream_->write(first, second);
    if (sent.status == IoResult::Status::kError) {
      broken_ = true;
      return;
    }
    if (sent.bytes == first.size() + second.size()) return;
    const std::size_t of_first = std::min(sent.bytes, first.size());
    first.remove_prefix(of_first);
    second.remove_prefix(sent.bytes - of_first);
    shard_.arm(stall_timer_, shard_.options().timeouts.client_stall);
    stream_->want_write();
  }
  unsent_ += first;
  unsent_ += second;
}

void ClientConnection::flush() {
  if (!blocked()) return;
  const IoResult sent = stream_->write(std::string_view(unsent_).substr(unsent_at_));
  if (sent.status == IoResult::Status::kError) {
    broken_ = true;
    return close_now();
  }
  unsent_at_ += sent.bytes;
  if (unsent_at_ < unsent_.size()) {
    if (sent.bytes > 0) shard_.arm(stall_timer_, shard_.options().timeouts.client_stall);
    return stream_->want_write();
  }
  // Memory that one slow moment took is not kept for the hours of a stream.
  std::string().swap(unsent_);
  unsent_at_ = 0;
  stall_timer_.cancel();
  if (phase_ == Phase::kFlushing) return after_answer();
  if (phase_ == Phase::kExchange) return exchange_->on_client_drained();
}

void ClientConnection::expect_body_within(Duration limit) {
  if (limit > Duration::zero()) {
    shard_.arm(timer_, limit);
  } else {
    timer_.cancel();
  }
}

void ClientConnection::exchange_ended(Ending ending, std::size_t consumed) {
  release_exchange();
  timer_.cancel();
  input_.consume(consumed);
  ending_ = ending;
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kFlushing;
  if (broken_) return close_now();
  if (ending_ == Ending::kReset) {
    stream_->reset();
    return closed();
  }
  if (!blocked()) after_answer();
}

void ClientConnection::after_answer() {
  if (ending_ == Ending::kClose) return linger();
  become_idle();
}

void ClientConnection::become_idle() {
  phase_ = Phase::kIdle;
  if (shard_.closing_idle()) return linger();
  if (processing_) return;
  if (input_.empty()) return await_request();
  // On a fresh stack: the exchange that has just ended may still be on this one.
  shard_.reactor().post(
      [connection = IntrusivePtr<ClientConnection>(this)] { connection->process(); });
}

void ClientConnection::await_request() {
  input_.release();
  shard_.arm(timer_, shard_.options().timeouts.client_idle);
  stream_->want_read();
}

void ClientConnection::linger() {
  phase_ = Phase::kLingering;
  input_.release();
  stream_->shutdown_send();
  shard_.arm(timer_, kLinger);
  stream_->want_read();
}

void ClientConnection::discard_input() {
  const IoResult got = stream_->read(shard_.read_buffer(), ProxyShard::kReadBuffer);
  if (got.status == IoResult::Status::kEnd || got.status == IoResult::Status::kError) {
    return close_now();
  }
  stream_->want_read();
}

void ClientConnection::on_stall() {
  const IntrusivePtr<ClientConnection> alive(this);
  if (exchange_ != nullptr) exchange_->on_client_stalled();
  stream_->reset();
  closed();
}

void ClientConnection::on_timeout() {
  const IntrusivePtr<ClientConnection> alive(this);
  if (phase_ == Phase::kExchange) return exchange_->on_body_timeout();
  if (phase_ == Phase::kHead) {
    return refuse(408, "head_timeout", "the request's head did not come in time");
  }
  close_now();
}

void ClientConnection::close_now() {
  const IntrusivePtr<ClientConnection> alive(this);
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kExchange) {
    // Comes back through exchange_ended().
    broken_ = true;
    return exchange_->on_client_gone();
  }
  stream_->close();
  closed();
}

void ClientConnection::closed() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  place_.give_back();
  timer_.cancel();
  stall_timer_.cancel();
  stream_->close();
  input_.release();
  std::string().swap(unsent_);
  release_exchange();
  shard_.connection_closed(*this);
}

void ClientConnection::release_exchange() {
  if (exchange_ != nullptr) shard_.give_back_exchange(std::exchange(exchange_, nullptr));
}

}  // namespace pointsman
