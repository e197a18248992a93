#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "net/asio.h"
#include "net/poller.h"
#include "net/stream.h"

namespace pointsman {

// One TCP connection. reset() closes with RST. net/tls_stream.h lays TLS over it.
//
// One cache line: thousands of silent streams are in no cache when they wake.
class alignas(64) SocketStream : public Stream {
 public:
  explicit SocketStream(Poller& poller) : Stream(poller) {}
  // Takes a connected, non-blocking socket.
  SocketStream(Poller& poller, int socket);

  // Starts to connect; want_write() then tells when it is decided, and connect_error() how.
  // An error here is immediate: no route, no descriptor.
  std::error_code connect(const asio::ip::tcp::endpoint& endpoint);
  [[nodiscard]] virtual std::error_code connect_error() const;

  IoResult read(char* to, std::size_t size) override;
  IoResult write(std::string_view first, std::string_view second = {}) override;
  void shutdown_send() override;
  void close() override;
  void reset() override;

  [[nodiscard]] int socket() const { return socket_; }

 protected:
  ~SocketStream() override { SocketStream::close(); }

 private:
  void on_ready(std::uint32_t events) override;
  std::error_code watch();

  int socket_ = -1;
};

static_assert(sizeof(SocketStream) == 64);

}  // namespace pointsman
