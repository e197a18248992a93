#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pointsman::test {

// The other side of a TLS connection, by OpenSSL alone and over memory: the test moves the bytes,
// and so sees them and may cut them as it likes.
class TlsPeer {
 public:
  using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

  // Takes the socket, non-blocking.
  TlsPeer(int socket, SSL_CTX* context, bool server) : socket_(socket), ssl_(SSL_new(context)) {
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl_, in_, out_);
    server ? SSL_set_accept_state(ssl_) : SSL_set_connect_state(ssl_);
  }
  ~TlsPeer() {
    SSL_free(ssl_);
    close();
  }
  TlsPeer(const TlsPeer&) = delete;
  TlsPeer& operator=(const TlsPeer&) = delete;

  [[nodiscard]] SSL* ssl() { return ssl_; }
  [[nodiscard]] int socket() const { return socket_; }
  // Bytes sent at once; 0: as many as there are.
  void send_in_pieces_of(std::size_t size) { piece_ = size; }

  // Moves bytes both ways and goes on with the handshake. Whether it is done.
  bool turn() {
    pull();
    if (!SSL_is_init_finished(ssl_)) {
      ERR_clear_error();
      SSL_do_handshake(ssl_);
    }
    push();
    return SSL_is_init_finished(ssl_) == 1;
  }
  // Nothing, or what has come.
  std::string read() {
    pull();
    std::string all;
    char bytes[16384];
    std::size_t got = 0;
    ERR_clear_error();
    while (SSL_read_ex(ssl_, bytes, sizeof bytes, &got) == 1) all.append(bytes, got);
    push();
    return all;
  }
  // One record of at most 16 KiB for each call.
  void write(std::string_view bytes) {
    ERR_clear_error();
    SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
    push();
  }
  void send_raw(std::string_view bytes) {
    ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void notify_close() {
    ERR_clear_error();
    SSL_shutdown(ssl_);
    push();
  }
  [[nodiscard]] bool told_of_close() {
    read();
    return (SSL_get_shutdown(ssl_) & SSL_RECEIVED_SHUTDOWN) != 0;
  }
  // Records of application data that have come since the last call; TLS 1.2 and 1.3 alike.
  std::size_t take_records() {
    std::size_t count = 0;
    pull();
    while (seen_.size() >= 5) {
      const std::size_t size =
          static_cast<unsigned char>(seen_[3]) * 256U + static_cast<unsigned char>(seen_[4]) + 5U;
      if (seen_.size() < size) break;
      if (seen_[0] == 23) ++count;
      seen_.erase(0, size);
    }
    return count;
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

 private:
  void pull() {
    char bytes[65536];
    ssize_t got = 0;
    while ((got = ::recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
      seen_.append(bytes, static_cast<std::size_t>(got));
      BIO_write(in_, bytes, static_cast<int>(got));
    }
  }
  void push() {
    char bytes[65536];
    int got = 0;
    while ((got = BIO_read(out_, bytes, sizeof bytes)) > 0) {
      unsent_.append(bytes, static_cast<std::size_t>(got));
    }
    const std::size_t size = piece_ == 0 ? unsent_.size() : std::min(piece_, unsent_.size());
    const ssize_t sent = ::send(socket_, unsent_.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) unsent_.erase(0, static_cast<std::size_t>(sent));
  }

  int socket_;
  SSL* ssl_;
  BIO* in_ = nullptr;
  BIO* out_ = nullptr;
  std::string seen_;
  std::string unsent_;
  std::size_t piece_ = 0;
};

inline TlsPeer::Context client_context() {
  return {SSL_CTX_new(TLS_client_method()), &SSL_CTX_free};
}

}  // namespace pointsman::test
