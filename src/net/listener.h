#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/result.h"
#include "net/asio.h"
#include "net/poller.h"
#include "net/reactor.h"

namespace pointsman {

// Accepts connections of the data port on one reactor. Several listeners, one per reactor, share
// the port (SO_REUSEPORT): the kernel spreads new connections over them.
//
// Once three quarters of the process's descriptors are in use, connections wait in the kernel's
// queue: the rest is for connections to replicas and probes, which idle clients may not starve.
//
// Accepted sockets are non-blocking and inherit from the listening socket: TCP_NODELAY, keepalive,
// and TCP_NOTSENT_LOWAT, which bounds what a client that reads nothing makes the kernel hold.
//
// For the reactor's thread only; bind() and listen() also before run().
class Listener final : private Poller::Source {
 public:
  struct Options {
    int backlog = 4096;             // the kernel caps it at net.core.somaxconn
    int unsent_limit = 128 * 1024;  // bytes; TCP_NOTSENT_LOWAT
  };
  // The socket is the callee's to close.
  using Accept = std::function<void(int socket, const asio::ip::tcp::endpoint& client)>;

  Listener(Reactor& reactor, Options options, Accept accept);
  ~Listener() { close(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // `address`: an IP address; port 0: any free one, see port(). Connections are still refused, and
  // the port is closed to all others but listeners of this user's processes.
  Result<void> bind(std::string_view address, std::uint16_t port);
  // Connections queue from here on.
  Result<void> listen();
  [[nodiscard]] std::uint16_t port() const { return port_; }

  // Starts to take connections. After listen().
  void start();
  // New connections are refused from here on.
  void close();

 private:
  void on_ready(std::uint32_t events) override;
  void on_rest_over();
  void rest(std::string_view why);

  Reactor& reactor_;
  const Options options_;
  const Accept accept_;
  int socket_ = -1;
  std::uint16_t port_ = 0;
  int first_reserved_ = 0;  // descriptors from this one on are for others
  bool resting_ = false;    // the process runs out of descriptors
  TimePoint last_rest_at_{};
  Timer again_;
};

}  // namespace pointsman
