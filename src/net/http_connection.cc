#include "net/http_connection.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/ascii.h"
#include "http/openai_error.h"

namespace pointsman {
namespace {

constexpr std::size_t kReadSize = 64 * 1024;
// Bytes of further requests that are read ahead while one is being handled.
constexpr std::size_t kReadAhead = 64 * 1024;
constexpr Duration kLinger = std::chrono::seconds(2);

}  // namespace

HttpConnection::HttpConnection(HttpServer& server, asio::ip::tcp::socket socket)
    : server_(&server),
      socket_(std::move(socket)),
      timer_([this] { on_timeout(); }),
      write_timer_([this] { reset(); }) {}

void HttpConnection::start() {
  server_->connections_.insert(shared_from_this());
  std::error_code ignored;
  socket_.non_blocking(true, ignored);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  request_.client = socket_.remote_endpoint(ignored);
  server_->reactor_.arm(timer_, server_->options_.head_timeout);
  wait_readable();
}

void HttpConnection::detach_response() {
  if (response_ == nullptr) return;
  // Moved out first: what a callback holds may be the last copy of this very response.
  const std::function<void()> on_gone = std::exchange(response_->on_gone, nullptr);
  const std::function<void()> on_drained = std::exchange(response_->on_drained, nullptr);
  response_->connection = nullptr;
  response_ = nullptr;
}

void HttpConnection::abandon() {
  detach_response();
  timer_.cancel();
  write_timer_.cancel();
  std::error_code ignored;
  socket_.close(ignored);
  phase_ = Phase::kClosed;
  if (server_ != nullptr) std::exchange(server_, nullptr)->connections_.erase(shared_from_this());
}

void HttpConnection::close() {
  if (phase_ == Phase::kClosed) return;
  const std::shared_ptr<HttpConnection> self = shared_from_this();
  std::function<void()> on_gone;
  if (response_ != nullptr) on_gone = std::move(response_->on_gone);
  abandon();
  if (on_gone) on_gone();
}

void HttpConnection::reset() {
  std::error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  close();
}

void HttpConnection::close_if_idle() {
  if (phase_ == Phase::kHead && in_.empty() && unsent() == 0) close();
  keep_alive_ = false;
}

// --- Input ---

void HttpConnection::wait_readable() {
  if (reading_ || input_ended_ || phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kHandling && in_.size() >= kReadAhead) return;
  reading_ = true;
  socket_.async_wait(asio::socket_base::wait_read,
                     [self = shared_from_this()](std::error_code error) {
                       self->reading_ = false;
                       self->on_readable(error);
                     });
}

void HttpConnection::on_readable(std::error_code error) {
  if (phase_ == Phase::kClosed) return;
  if (error) return close();
  static thread_local std::array<char, kReadSize> scratch;
  const std::size_t size = socket_.read_some(asio::buffer(scratch), error);
  if (error == asio::error::would_block || error == asio::error::try_again) {
    return wait_readable();
  }
  if (error == asio::error::eof) return on_end_of_input();
  if (error) return close();
  if (phase_ == Phase::kLingering) return wait_readable();
  const bool first_bytes = in_.empty();
  in_.append(scratch.data(), size);
  if (phase_ == Phase::kBody || (phase_ == Phase::kHead && first_bytes)) arm_for_phase();
  process();
}

void HttpConnection::on_end_of_input() {
  input_ended_ = true;
  // A client that has shut its side counts as gone, as it does for the engines' servers, unless the
  // answer is complete and only has to be sent.
  const bool answered = phase_ == Phase::kHead || phase_ == Phase::kLingering;
  if (!answered || unsent() == 0) return close();
  keep_alive_ = false;
  close_after_write();
}

// What the time-out means now.
void HttpConnection::arm_for_phase() {
  const HttpServer::Options& options = server_->options_;
  switch (phase_) {
    case Phase::kHead:
      server_->reactor_.arm(timer_,
                            in_.empty() ? options.keep_alive_timeout : options.head_timeout);
      return;
    case Phase::kBody:
      server_->reactor_.arm(timer_, options.body_gap);
      return;
    case Phase::kLingering:
      server_->reactor_.arm(timer_, kLinger);
      return;
    case Phase::kHandling:
    case Phase::kClosed:
      timer_.cancel();
      return;
  }
}

void HttpConnection::on_timeout() {
  const bool idle = phase_ == Phase::kHead && in_.empty();
  if (idle || phase_ == Phase::kLingering) return close();
  refuse(408, "the request did not arrive in time");
}

void HttpConnection::process() {
  if (processing_) return;
  processing_ = true;
  const std::shared_ptr<HttpConnection> self = shared_from_this();
  bool more = true;
  while (more) {
    switch (phase_) {
      case Phase::kHead:
        more = read_head();
        break;
      case Phase::kBody:
        more = read_body();
        break;
      case Phase::kHandling:
      case Phase::kLingering:
      case Phase::kClosed:
        more = false;
        break;
    }
  }
  processing_ = false;
  wait_readable();
}

bool HttpConnection::read_head() {
  // An empty line before a request is skipped (RFC 9112, 2.2).
  if (in_.starts_with("\r\n")) in_.erase(0, 2);
  if (in_.empty()) return false;
  const HeadResult result = parser_.parse(in_);
  if (result.status == HeadResult::kNeedMore) return false;
  if (result.status == HeadResult::kBad) {
    refuse(result.http_status, result.reason);
    return false;
  }
  const RequestHead& head = parser_.head();
  request_.method = head.method();
  request_.target = head.target();
  request_.path = head.path();
  request_.query = head.query().empty() ? std::string() : std::string(head.query().substr(1));
  request_.headers.clear();
  request_.headers.reserve(head.header_count());
  for (std::size_t i = 0; i < head.header_count(); ++i) {
    const Header header = head.header(i);
    request_.headers.emplace_back(header.name, header.value);
  }
  request_.body.clear();
  head_request_ = head.method() == "HEAD";
  http10_ = head.version_minor() == 0;
  keep_alive_ = keep_alive_ && head.keep_alive();
  chunked_body_ = head.chunked();
  chunks_.reset();
  const std::uint64_t length = head.content_length().value_or(0);
  const bool wants_continue = head.expect_continue() && head.has_body();
  in_.erase(0, result.size);
  parser_.reset();
  if (length > server_->options_.max_body) {
    refuse(413, "the body is larger than this server takes");
    return false;
  }
  body_left_ = static_cast<std::size_t>(length);
  phase_ = Phase::kBody;
  if (wants_continue && in_.empty()) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  }
  arm_for_phase();
  return true;
}

bool HttpConnection::read_body() {
  if (chunked_body_) {
    const std::size_t used =
        chunks_.feed(in_, [this](std::string_view data) { request_.body += data; });
    in_.erase(0, used);
    if (chunks_.bad()) {
      refuse(400, "the body's chunks are malformed");
      return false;
    }
    if (request_.body.size() > server_->options_.max_body) {
      refuse(413, "the body is larger than this server takes");
      return false;
    }
    if (!chunks_.done()) return false;
  } else {
    const std::size_t take = std::min(body_left_, in_.size());
    request_.body.append(in_, 0, take);
    in_.erase(0, take);
    body_left_ -= take;
    if (body_left_ > 0) return false;
  }
  hand_over();
  return phase_ == Phase::kHead;
}

void HttpConnection::hand_over() {
  phase_ = Phase::kHandling;
  arm_for_phase();
  begun_ = false;
  no_body_ = false;
  chunked_answer_ = false;
  over_high_water_ = false;
  HttpResponse response;
  response.state_ = std::make_shared<HttpResponse::State>();
  response.state_->connection = this;
  response_ = response.state_.get();
  const asio::ip::tcp::endpoint client = request_.client;
  HttpRequest request = std::move(request_);
  request_ = HttpRequest();
  request_.client = client;
  server_->handler_(std::move(request), std::move(response));
}

void HttpConnection::refuse(int status, std::string_view reason) {
  keep_alive_ = false;
  head_request_ = false;
  http10_ = false;
  phase_ = Phase::kHandling;
  begun_ = false;
  send_error(status, reason);
}

// --- Output ---

void HttpConnection::send_error(int status, std::string_view message) {
  std::string body;
  append_error_body({.status = status,
                     .type = status < 500 ? "invalid_request_error" : "internal_error",
                     .message = message},
                    body);
  send(status, "application/json", body, {});
}

void HttpConnection::append_head(int status, std::string_view content_type,
                                 const HttpHeaders& headers, std::string_view framing) {
  out_ += "HTTP/1.1 ";
  out_ += std::to_string(status);
  out_ += ' ';
  const std::string_view reason = reason_phrase(status);
  out_ += reason.empty() ? "Unknown" : reason;
  out_ += "\r\n";
  if (!server_->options_.server_name.empty()) {
    out_.append("Server: ").append(server_->options_.server_name).append("\r\n");
  }
  if (!content_type.empty()) out_.append("Content-Type: ").append(content_type).append("\r\n");
  for (const auto& [name, value] : headers) {
    out_.append(name).append(": ").append(value).append("\r\n");
  }
  out_ += framing;
  if (!keep_alive_) {
    out_ += "Connection: close\r\n";
  } else if (http10_) {
    out_ += "Connection: keep-alive\r\n";
  }
  out_ += "\r\n";
}

void HttpConnection::send(int status, std::string_view content_type, std::string_view body,
                          const HttpHeaders& headers) {
  if (phase_ != Phase::kHandling || begun_) return;
  const bool bodiless = status < 200 || status == 204 || status == 304;
  std::string framing;
  if (!bodiless) framing = "Content-Length: " + std::to_string(body.size()) + "\r\n";
  append_head(status, content_type, headers, framing);
  if (!bodiless && !head_request_) out_ += body;
  answer_complete();
}

void HttpConnection::begin(int status, std::string_view content_type, const HttpHeaders& headers) {
  if (phase_ != Phase::kHandling || begun_) return;
  begun_ = true;
  const bool bodiless = status < 200 || status == 204 || status == 304;
  no_body_ = head_request_ || bodiless;
  chunked_answer_ = !http10_ && !bodiless;
  if (http10_ && !bodiless) keep_alive_ = false;
  append_head(status, content_type, headers,
              chunked_answer_ ? "Transfer-Encoding: chunked\r\n" : "");
  flush();
}

bool HttpConnection::write(std::string_view bytes) {
  if (phase_ != Phase::kHandling || !begun_) return true;
  if (!no_body_ && !bytes.empty()) {
    if (chunked_answer_) {
      char size[24];
      const int length = std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
      out_.append(size, static_cast<std::size_t>(length));
      out_.append(bytes).append("\r\n");
    } else {
      out_ += bytes;
    }
    flush();
  }
  if (unsent() <= server_->options_.high_water) return true;
  over_high_water_ = true;
  return false;
}

void HttpConnection::end() {
  if (phase_ != Phase::kHandling || !begun_) return;
  if (chunked_answer_ && !no_body_) out_ += "0\r\n\r\n";
  answer_complete();
}

bool HttpConnection::write_raw(std::string_view bytes) {
  if (phase_ != Phase::kHandling) return true;
  begun_ = true;
  out_ += bytes;
  flush();
  if (unsent() <= server_->options_.high_water) return true;
  over_high_water_ = true;
  return false;
}

void HttpConnection::answer_complete() {
  detach_response();
  if (!keep_alive_) {
    close_after_write();
    flush();
    return;
  }
  phase_ = Phase::kHead;
  flush();
  if (phase_ != Phase::kHead) return;
  arm_for_phase();
  if (input_ended_) return close_after_write();
  if (processing_) return;
  if (in_.empty()) return wait_readable();
  // The next request is already here. Not handled inside the call that ends the previous one.
  server_->reactor_.post([self = shared_from_this()] {
    if (self->phase_ != Phase::kClosed) self->process();
  });
}

void HttpConnection::close_after_write() {
  detach_response();
  phase_ = Phase::kLingering;
  arm_for_phase();
  if (unsent() == 0) on_flushed();
}

void HttpConnection::drop_response() {
  response_ = nullptr;
  if (begun_) return close_after_write();
  send_error(500, "the request was not answered");
}

void HttpConnection::flush() {
  if (writing_ || broken_ || phase_ == Phase::kClosed) return;
  std::error_code error;
  while (sent_ < out_.size()) {
    sent_ += socket_.write_some(asio::buffer(out_.data() + sent_, out_.size() - sent_), error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      // Dropping the sent front when it is the larger part keeps the copying linear.
      if (sent_ > out_.size() / 2) {
        out_.erase(0, sent_);
        sent_ = 0;
      }
      writing_ = true;
      server_->reactor_.arm(write_timer_, server_->options_.write_stall);
      socket_.async_wait(asio::socket_base::wait_write,
                         [self = shared_from_this()](std::error_code wait_error) {
                           self->writing_ = false;
                           if (self->phase_ == Phase::kClosed) return;
                           if (wait_error) return self->close();
                           self->flush();
                           self->on_flushed();
                         });
      return;
    }
    if (error) {
      // Told from a fresh stack: flush() may run inside a call of the one who has to be told.
      broken_ = true;
      server_->reactor_.post([self = shared_from_this()] { self->close(); });
      return;
    }
  }
  write_timer_.cancel();
  out_.clear();
  sent_ = 0;
  if (phase_ == Phase::kLingering) on_flushed();
}

// Some or all of the unsent bytes have gone.
void HttpConnection::on_flushed() {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kLingering && unsent() == 0) {
    if (input_ended_) return close();
    std::error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    arm_for_phase();
    wait_readable();
    return;
  }
  if (over_high_water_ && unsent() < server_->options_.high_water / 2) {
    over_high_water_ = false;
    if (response_ != nullptr && response_->on_drained) {
      const std::function<void()> callback = response_->on_drained;
      callback();
    }
  }
}

}  // namespace pointsman
