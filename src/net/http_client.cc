#include "net/http_client.h"

#include <array>
#include <asio/ssl.hpp>
#include <optional>
#include <utility>

#include <openssl/ssl.h>

#include "http/chunk_scanner.h"
#include "http/head_parser.h"
#include "net/own_lack.h"

namespace pointsman {

using Outcome = HttpGetResult::Outcome;

// Resolve, connect (each address in turn), send, read. finish() ends it on every path.
class HttpGet::Operation : public std::enable_shared_from_this<Operation> {
 public:
  Operation(Reactor& reactor, Resolver& resolver, HttpGetRequest request, Callback callback,
            IntrusivePtr<TlsSession> session)
      : reactor_(reactor),
        resolver_(resolver),
        session_(std::move(session)),
        request_(std::move(request)),
        callback_(std::move(callback)),
        socket_(reactor.io()),
        timer_([this] { on_timeout(); }) {}

  void start() {
    reactor_.arm(timer_, request_.timeout);
    resolver_.resolve(reactor_, request_.host, request_.port,
                      [self = shared_from_this()](Result<Resolver::Endpoints> found) {
                        if (self->done()) return;
                        if (!found) {
                          return self->finish(Outcome::kUnresolved, found.error().message);
                        }
                        self->endpoints_ = *std::move(found);
                        self->connect();
                      });
  }

  [[nodiscard]] bool done() const { return callback_ == nullptr; }

  void cancel() {
    callback_ = nullptr;
    timer_.cancel();
    std::error_code ignored;
    socket_.close(ignored);
  }

 private:
  void connect() {
    std::error_code ignored;
    tls_.reset();
    socket_.close(ignored);
    socket_.async_connect(endpoints_[next_++], [self = shared_from_this()](std::error_code error) {
      if (self->done()) return;
      if (!error) return self->request_.tls ? self->shake_hands() : self->send();
      // Of a protocol that this machine does not have, an address looks like a lack of ports.
      if (self->next_ < self->endpoints_.size()) return self->connect();
      if (is_own_lack(error)) {
        return self->finish(Outcome::kOwnLack, "the router lacks resources: " + error.message());
      }
      self->finish(
          error == asio::error::connection_refused ? Outcome::kRefused : Outcome::kUnreachable,
          error.message());
    });
  }

  void shake_hands() {
    SSL* const connection = request_.tls->connect(request_.tls_name);
    if (connection == nullptr) return finish(Outcome::kOwnLack, "no memory for TLS");
    session_->attach(connection);
    tls_.emplace(socket_, connection);  // which owns it from here on
    tls_->async_handshake(TlsSocket::client, [self = shared_from_this()](std::error_code error) {
      if (self->done()) return;
      if (!error) return self->send();
      self->session_->clear();
      self->finish(Outcome::kUnreachable, "TLS: " + self->tls_problem(error));
    });
  }

  // What is wrong with the other side's certificate, where that is what failed.
  [[nodiscard]] std::string tls_problem(const std::error_code& error) {
    const long verification = SSL_get_verify_result(tls_->native_handle());
    if (!request_.tls->insecure() && verification != X509_V_OK) {
      return X509_verify_cert_error_string(verification);
    }
    if (error == asio::error::eof || error == asio::ssl::error::stream_truncated) {
      return "the connection ended within the handshake";
    }
    return error.message();
  }

  void send() {
    std::error_code ignored;
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    out_ = "GET " + request_.target + " HTTP/1.1\r\nHost: ";
    if (!request_.authority.empty()) {
      out_ += request_.authority;
    } else {
      const bool v6 = request_.host.find(':') != std::string::npos;
      out_ += v6 ? "[" + request_.host + "]" : request_.host;
      out_ += ":" + std::to_string(request_.port);
    }
    out_ += "\r\nUser-Agent: pointsman\r\nAccept: */*\r\nConnection: close\r\n";
    if (!request_.bearer.empty()) out_ += "Authorization: Bearer " + request_.bearer + "\r\n";
    out_ += "\r\n";
    // What goes wrong here shows on the reading side too, and better.
    const auto written = [self = shared_from_this()](std::error_code, std::size_t) {};
    if (tls_) {
      asio::async_write(*tls_, asio::buffer(out_), written);
    } else {
      asio::async_write(socket_, asio::buffer(out_), written);
    }
    read();
  }

  void read() {
    const auto got = [self = shared_from_this()](std::error_code error, std::size_t size) {
      if (self->done()) return;
      if (error) return self->on_end(error);
      self->in_.append(self->scratch_.data(), size);
      self->any_byte_ = true;
      self->parse();
      if (!self->done()) self->read();
    };
    if (tls_) {
      tls_->async_read_some(asio::buffer(scratch_), got);
    } else {
      socket_.async_read_some(asio::buffer(scratch_), got);
    }
  }

  void parse() {
    while (!kind_) {
      const HeadResult head = parser_.parse(in_);
      if (head.status == HeadResult::kNeedMore) return;
      if (head.status == HeadResult::kBad) {
        return finish(Outcome::kBroken, "malformed answer: " + std::string(head.reason));
      }
      const ResponseHead& answer = parser_.head();
      if (!answer.interim()) {
        result_.status = answer.status();
        result_.content_type = answer.content_type();
        length_ = answer.content_length().value_or(0);
        kind_ = answer.body_kind("GET");
      }
      in_.erase(0, head.size);
      parser_.reset();
    }
    switch (*kind_) {
      case BodyKind::kNone:
        return answered();
      case BodyKind::kLength:
        if (length_ > request_.max_body) return too_large();
        if (in_.size() < length_) return;
        in_.resize(static_cast<std::size_t>(length_));
        result_.body = std::move(in_);
        return answered();
      case BodyKind::kChunked:
        chunks_.feed(in_, [this](std::string_view data) { result_.body += data; });
        in_.clear();
        if (chunks_.bad()) return finish(Outcome::kBroken, "malformed chunks");
        if (result_.body.size() > request_.max_body) return too_large();
        if (chunks_.done()) answered();
        return;
      case BodyKind::kUntilClose:
        result_.body += in_;
        in_.clear();
        if (result_.body.size() > request_.max_body) too_large();
        return;
    }
  }

  void on_end(std::error_code error) {
    const bool closed = error == asio::error::eof;
    if (!any_byte_ && error.category() == asio::error::get_ssl_category()) {
      return finish(Outcome::kUnreachable, "TLS: " + tls_problem(error));
    }
    if (!any_byte_) {
      return closed ? finish(Outcome::kClosed, "closed without an answer")
                    : finish(Outcome::kReset, error.message());
    }
    if (closed && kind_ == BodyKind::kUntilClose) return answered();
    finish(Outcome::kBroken, "the answer was cut");
  }

  void on_timeout() {
    finish(any_byte_ ? Outcome::kTimedOutMidway : Outcome::kTimedOut, "timed out");
  }

  void answered() { finish(Outcome::kAnswered, std::to_string(result_.status)); }
  void too_large() {
    finish(Outcome::kTooLarge,
           "the body is larger than " + std::to_string(request_.max_body) + " bytes");
  }

  void finish(Outcome outcome, std::string detail) {
    const std::shared_ptr<Operation> self = shared_from_this();
    const Callback callback = std::exchange(callback_, nullptr);
    cancel();
    result_.outcome = outcome;
    result_.detail = std::move(detail);
    callback(std::move(result_));
  }

  Reactor& reactor_;
  Resolver& resolver_;
  const IntrusivePtr<TlsSession> session_;
  const HttpGetRequest request_;
  Callback callback_;
  Resolver::Endpoints endpoints_;
  std::size_t next_ = 0;
  asio::ip::tcp::socket socket_;
  using TlsSocket = asio::ssl::stream<asio::ip::tcp::socket&>;
  std::optional<TlsSocket> tls_;
  Timer timer_;
  std::string out_;
  std::string in_;
  std::array<char, std::size_t{16} * 1024> scratch_;
  bool any_byte_ = false;
  ResponseHeadParser parser_;
  std::optional<BodyKind> kind_;
  std::uint64_t length_ = 0;
  ChunkScanner chunks_;
  HttpGetResult result_;
};

HttpGet::HttpGet(Reactor& reactor, Resolver& resolver) : reactor_(reactor), resolver_(resolver) {}

HttpGet::~HttpGet() {
  cancel();
}

void HttpGet::start(HttpGetRequest request, Callback callback) {
  cancel();
  if (request.host != host_ || request.port != port_) session_->clear();
  host_ = request.host;
  port_ = request.port;
  operation_ = std::make_shared<Operation>(reactor_, resolver_, std::move(request),
                                           std::move(callback), session_);
  operation_->start();
}

void HttpGet::cancel() {
  if (operation_ != nullptr) operation_->cancel();
  operation_.reset();
}

bool HttpGet::running() const {
  return operation_ != nullptr && !operation_->done();
}

}  // namespace pointsman
