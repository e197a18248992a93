#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "support/certificates.h"
#include "support/tls_socket.h"

namespace pointsman::test {

// A server on a port of loopback that speaks TLS: runs `serve` for one connection after the other,
// on a thread of its own.
class TlsListener {
 public:
  using Serve = std::function<void(TlsSocket&)>;

  TlsListener(const Certificate& certificate, Serve serve)
      : serve_(std::move(serve)), context_(SSL_CTX_new(TLS_server_method())) {
    SSL_CTX_use_certificate(context_, certificate.x509.get());
    SSL_CTX_use_PrivateKey(context_, certificate.key.get());
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 64), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~TlsListener() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
    SSL_CTX_free(context_);
  }
  TlsListener(const TlsListener&) = delete;
  TlsListener& operator=(const TlsListener&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  // Handshakes that went on with a session from before.
  [[nodiscard]] int resumed() const { return resumed_; }

 private:
  void run() {
    for (;;) {
      const int accepted = ::accept(socket_, nullptr, nullptr);
      if (accepted < 0) return;
      TlsSocket connection(accepted, context_, true);
      if (SSL_session_reused(connection.ssl()) == 1) ++resumed_;
      if (connection.open()) serve_(connection);
    }
  }

  const Serve serve_;
  SSL_CTX* const context_;
  int socket_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<int> resumed_{0};
  std::thread thread_;
};

}  // namespace pointsman::test
