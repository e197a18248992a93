#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/asio.h"
#include "net/reactor.h"
#include "net/stream.h"

namespace pointsman {

// Accepts connections of the data port on one reactor. Several listeners, one per reactor, share
// the port (SO_REUSEPORT): the kernel spreads new connections over them.
//
// Accepted sockets are non-blocking and inherit from the listening socket: TCP_NODELAY, keepalive,
// and TCP_NOTSENT_LOWAT, which bounds what a client that reads nothing makes the kernel hold.
//
// For the reactor's thread only; listen() also before run().
class Listener {
 public:
  struct Options {
    int backlog = 4096;             // the kernel caps it at net.core.somaxconn
    int unsent_limit = 128 * 1024;  // bytes; TCP_NOTSENT_LOWAT
  };
  using Accept = std::function<void(TcpSocket socket, const asio::ip::tcp::endpoint& client)>;

  Listener(Reactor& reactor, Options options, Accept accept);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // `address`: an IP address; port 0: any free one, see port(). Connections queue from here on.
  Result<void> listen(std::string_view address, std::uint16_t port);
  [[nodiscard]] std::uint16_t port() const { return port_; }

  // Starts to take connections.
  void start();
  // New connections are refused from here on.
  void close();

 private:
  void wait();
  void accept_ready();

  Reactor& reactor_;
  const Options options_;
  const Accept accept_;
  asio::basic_socket_acceptor<asio::ip::tcp, asio::io_context::executor_type> acceptor_;
  std::uint16_t port_ = 0;
  Timer again_;  // after the process ran out of descriptors
};

}  // namespace pointsman
