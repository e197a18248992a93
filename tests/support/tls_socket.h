#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace pointsman::test {

// One end of a TLS connection by OpenSSL, blocking, for at most ten seconds a call.
class TlsSocket {
 public:
  // Takes the connected socket.
  TlsSocket(int socket, SSL_CTX* context, bool server) : socket_(socket), ssl_(SSL_new(context)) {
    const timeval limit{10, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    SSL_set_fd(ssl_, socket_);
    ERR_clear_error();
    open_ = (server ? SSL_accept(ssl_) : SSL_connect(ssl_)) == 1;
  }
  ~TlsSocket() {
    SSL_free(ssl_);
    ::close(socket_);
  }
  TlsSocket(const TlsSocket&) = delete;
  TlsSocket& operator=(const TlsSocket&) = delete;

  // A socket that is connected to a port of loopback.
  static int connected(std::uint16_t port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return socket;
  }

  // Whether the handshake has ended well.
  [[nodiscard]] bool open() const { return open_; }
  [[nodiscard]] SSL* ssl() { return ssl_; }

  void send(std::string_view bytes) {
    ERR_clear_error();
    if (!bytes.empty()) SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
  }
  // Up to and with `end`; where the other side ends first, what came until then.
  std::string read_until(std::string_view end) {
    while (kept_.find(end) == std::string::npos) {
      char bytes[16384];
      ERR_clear_error();
      const int got = SSL_read(ssl_, bytes, sizeof bytes);
      if (got <= 0) return std::exchange(kept_, {});
      kept_.append(bytes, static_cast<std::size_t>(got));
    }
    const std::size_t size = kept_.find(end) + end.size();
    std::string taken = kept_.substr(0, size);
    kept_.erase(0, size);
    return taken;
  }
  // With close_notify.
  void end() {
    ERR_clear_error();
    SSL_shutdown(ssl_);
  }

 private:
  int socket_;
  SSL* ssl_;
  bool open_ = false;
  std::string kept_;
};

}  // namespace pointsman::test
