#include "net/tls_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "net/tls_error.h"

namespace pointsman {
namespace {

constexpr std::size_t kRecord = SSL3_RT_MAX_PLAIN_LENGTH;  // 16 KiB

}  // namespace

// --- the bytes below -----------------------------------------------------------------------------

int TlsStream::receive(BIO* bio, char* to, int size) {
  TlsStream& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  IoResult got{IoResult::Status::kWouldBlock};
  if (!stream.drained_) {
    stream.readable_ = true;
    got = stream.SocketStream::read(to, static_cast<std::size_t>(size));
    stream.drained_ = !stream.readable_;
  }
  switch (got.status) {
    case IoResult::Status::kOk:
      return static_cast<int>(got.bytes);
    case IoResult::Status::kWouldBlock:
      BIO_set_retry_read(bio);
      return -1;
    case IoResult::Status::kEnd:
      stream.transport_ended_ = true;
      return 0;
    case IoResult::Status::kError:
      stream.transport_error_ = got.error;
      return -1;
  }
  return -1;
}

int TlsStream::send(BIO* bio, const char* from, int size) {
  TlsStream& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  IoResult sent{IoResult::Status::kWouldBlock};
  if (!stream.full_) {
    stream.writable_ = true;
    sent = stream.SocketStream::write({from, static_cast<std::size_t>(size)});
    stream.full_ = !stream.writable_;
  }
  if (sent.status == IoResult::Status::kOk) return static_cast<int>(sent.bytes);
  if (sent.status == IoResult::Status::kWouldBlock) {
    BIO_set_retry_write(bio);
  } else {
    stream.transport_error_ = sent.error;
  }
  return -1;
}

long TlsStream::control(BIO* bio, int command, long, void*) {
  switch (command) {
    case BIO_CTRL_FLUSH:
      return 1;
    case BIO_CTRL_EOF:
      return static_cast<const TlsStream*>(BIO_get_data(bio))->transport_ended_ ? 1 : 0;
    default:
      return 0;
  }
}

const BIO_METHOD* TlsStream::transport() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "pointsman");
    if (made == nullptr) return made;
    BIO_meth_set_read(made, &receive);
    BIO_meth_set_write(made, &send);
    BIO_meth_set_ctrl(made, &control);
    BIO_meth_set_create(made, [](BIO* bio) {
      BIO_set_init(bio, 1);
      return 1;
    });
    return made;
  }();
  return method;
}

// --- the handshake -------------------------------------------------------------------------------

TlsStream::TlsStream(Poller& poller, int socket, TlsServer& server, TlsTurns& turns)
    : SocketStream(poller, socket), server_(&server), turns_(&turns) {
  writable_ = false;
}

TlsStream::TlsStream(Poller& poller, std::shared_ptr<const TlsClient> client, std::string name,
                     IntrusivePtr<TlsSession> session)
    : SocketStream(poller),
      full_(true),  // until it is connected
      client_(std::move(client)),
      name_(std::move(name)),
      session_(std::move(session)) {}

std::error_code TlsStream::connect_error() const {
  return phase_ == Phase::kFailed ? error_ : SocketStream::connect_error();
}

void TlsStream::on_ready(std::uint32_t events) {
  const bool over = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  const bool in = over || (events & EPOLLIN) != 0;
  const bool out = (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
  if (over) ended_ = true;
  if (in) drained_ = false;
  if (out) full_ = false;
  if (phase_ == Phase::kHandshake) {
    handshake();
  } else if (phase_ == Phase::kOpen) {
    if (in || (out && read_waits_)) readable_ = true;
    if (out || (in && write_waits_)) writable_ = true;
    if (out && notify_waits_) shutdown_send();
  }
  tell();
}

// Makes the state of TLS, once there is something to do with it.
bool TlsStream::begin() {
  if (server_ != nullptr) {
    if (drained_) return false;
    ssl_ = server_->accept();
  } else {
    if (full_) return false;
    if (const std::error_code error = SocketStream::connect_error()) {
      fail(error);
      return false;
    }
    ssl_ = client_->connect(name_);
  }
  if (ssl_ != nullptr && attach_transport()) return true;
  fail(std::make_error_code(std::errc::not_enough_memory));
  return false;
}

bool TlsStream::attach_transport() {
  BIO* const bio = transport() == nullptr ? nullptr : BIO_new(transport());
  if (bio == nullptr) return false;
  BIO_set_data(bio, this);
  SSL_set_bio(ssl_, bio, bio);
  if (session_) session_->attach(ssl_);
  return true;
}

void TlsStream::handshake() {
  if (turns_ != nullptr && (ssl_ != nullptr || !drained_)) {
    if (turns_->round != poller_.round()) *turns_ = {poller_.round(), 0};
    if (turns_->taken == TlsTurns::kPerRound) return poller_.soon(*this);
    ++turns_->taken;
  }
  if (ssl_ == nullptr && !begin()) return;
  ERR_clear_error();
  const int outcome = SSL_do_handshake(ssl_);
  if (outcome == 1) {
    phase_ = Phase::kOpen;
    readable_ = !drained_ || ended_ || SSL_has_pending(ssl_) == 1;
    writable_ = !full_;
    return;
  }
  const int why = SSL_get_error(ssl_, outcome);
  if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) return fail(error_of(why));
  readable_ = writable_ = false;
}

std::error_code TlsStream::error_of(int why) const {
  const bool told = why == SSL_ERROR_SSL &&
                    ERR_GET_REASON(ERR_peek_error()) != SSL_R_UNEXPECTED_EOF_WHILE_READING;
  // What OpenSSL says goes first: an alert that could not be sent for it is an error as well.
  if (told) return last_tls_error(ssl_);
  if (transport_ended_) {
    return phase_ == Phase::kHandshake ? tls_handshake_cut() : tls_truncated();
  }
  return transport_error_ ? transport_error_ : last_tls_error(ssl_);
}

void TlsStream::fail(const std::error_code& error) {
  error_ = error;
  phase_ = Phase::kFailed;
  readable_ = writable_ = ended_ = true;
  // A session is given up for an error of TLS, and not for a connection that just ended.
  if (session_ && error.category() == tls_category() && error != tls_truncated()) session_->clear();
}

std::string_view TlsStream::protocol() const {
  const unsigned char* name = nullptr;
  unsigned size = 0;
  if (ssl_ != nullptr) SSL_get0_alpn_selected(ssl_, &name, &size);
  return {reinterpret_cast<const char*>(name), size};
}

bool TlsStream::resumed() const {
  return ssl_ != nullptr && SSL_session_reused(ssl_) == 1;
}

void TlsStream::answer_in_plain(std::string_view answer) {
  if (phase_ != Phase::kFailed || socket() < 0) return;
  SocketStream::write(answer);
  SocketStream::shutdown_send();
  // What the client has sent is thrown away: unread, it would make a RST of the close, which can
  // overtake the answer.
  std::array<char, kRecord> ignored;
  while (SocketStream::read(ignored.data(), ignored.size()).ok()) {
  }
  readable_ = writable_ = true;
}

// --- reading and writing -------------------------------------------------------------------------

IoResult TlsStream::read(char* to, std::size_t size) {
  if (phase_ == Phase::kFailed) return failed();
  if (phase_ == Phase::kHandshake || ssl_ == nullptr) return {IoResult::Status::kWouldBlock};
  read_waits_ = false;
  std::size_t filled = 0;
  IoResult::Status status = IoResult::Status::kOk;
  ERR_clear_error();
  while (filled < size) {
    std::size_t got = 0;
    if (SSL_read_ex(ssl_, to + filled, size - filled, &got) == 1) {
      filled += got;
      // What is left is in OpenSSL's buffer, and costs no call of the system.
      if (SSL_has_pending(ssl_) == 1) continue;
      break;
    }
    const int why = SSL_get_error(ssl_, 0);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
      read_waits_ = why == SSL_ERROR_WANT_WRITE;
      readable_ = false;
      status = IoResult::Status::kWouldBlock;
      break;
    }
    readable_ = ended_ = true;
    if (why == SSL_ERROR_ZERO_RETURN) {
      status = IoResult::Status::kEnd;
    } else {
      fail(error_of(why));
      status = IoResult::Status::kError;
    }
    break;
  }
  if (status == IoResult::Status::kOk) {
    readable_ = !drained_ || ended_ || SSL_has_pending(ssl_) == 1;
  }
  writable_ = (!full_ && !write_waits_) || phase_ == Phase::kFailed;
  // The bytes first; an end behind them shows again in the next call.
  if (filled > 0) return {IoResult::Status::kOk, filled};
  return status == IoResult::Status::kError ? failed() : IoResult{status};
}

IoResult TlsStream::write(std::string_view first, std::string_view second) {
  if (phase_ == Phase::kFailed) return failed();
  if (phase_ == Phase::kHandshake || ssl_ == nullptr) return {IoResult::Status::kWouldBlock};
  write_waits_ = false;
  const bool was_readable = readable_;
  std::size_t taken = 0;
  bool blocked = false;
  std::array<char, kRecord> joined;
  ERR_clear_error();
  while (!first.empty() || !second.empty()) {
    std::string_view piece = first.empty() ? second : first;
    if (!first.empty() && !second.empty() && first.size() < kRecord) {
      const std::size_t of_second = std::min(second.size(), kRecord - first.size());
      std::memcpy(joined.data(), first.data(), first.size());
      std::memcpy(joined.data() + first.size(), second.data(), of_second);
      piece = {joined.data(), first.size() + of_second};
    }
    std::size_t sent = 0;
    if (SSL_write_ex(ssl_, piece.data(), piece.size(), &sent) != 1) {
      const int why = SSL_get_error(ssl_, 0);
      blocked = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
      write_waits_ = why == SSL_ERROR_WANT_READ;
      if (!blocked) fail(error_of(why));
      break;
    }
    taken += sent;
    const std::size_t of_first = std::min(sent, first.size());
    first.remove_prefix(of_first);
    second.remove_prefix(sent - of_first);
  }
  record_waits_ = blocked;
  if (phase_ == Phase::kFailed) return failed();
  readable_ = was_readable;
  writable_ = !blocked && !full_;
  if (blocked && taken == 0) return {IoResult::Status::kWouldBlock};
  return {IoResult::Status::kOk, taken};
}

// --- the end -------------------------------------------------------------------------------------

// Sends close_notify, where that can be done. False: when the socket takes bytes again.
bool TlsStream::notify() {
  if (phase_ != Phase::kOpen || ssl_ == nullptr || notified_ || record_waits_) return true;
  const bool was_readable = readable_;
  ERR_clear_error();
  const int outcome = SSL_shutdown(ssl_);
  const bool waits = outcome < 0 && SSL_get_error(ssl_, outcome) == SSL_ERROR_WANT_WRITE;
  notified_ = !waits;
  readable_ = was_readable;
  return !waits;
}

void TlsStream::shutdown_send() {
  notify_waits_ = !notify();
  if (!notify_waits_) SocketStream::shutdown_send();
}

void TlsStream::close() {
  if (socket() >= 0) notify();
  SSL_free(std::exchange(ssl_, nullptr));
  SocketStream::close();
}

void TlsStream::reset() {
  notified_ = true;
  SocketStream::reset();
}

}  // namespace pointsman
