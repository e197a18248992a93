#include "net/listener.h"

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

namespace pointsman {
namespace {

// Taken at one go, so that a flood of connections does not starve the ones that are served.
constexpr int kAcceptsPerTurn = 64;

// Seconds. A client whose host died without a word is noticed within a few minutes.
constexpr int kKeepaliveIdle = 60;
constexpr int kKeepaliveInterval = 15;

constexpr Duration kRest = std::chrono::milliseconds(200);

bool set_option(int socket, int level, int name, int value) {
  return ::setsockopt(socket, level, name, &value, sizeof(value)) == 0;
}

bool out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

Listener::Listener(Reactor& reactor, Options options, Accept accept)
    : reactor_(reactor), options_(options), accept_(std::move(accept)), again_([this] {
        resting_ = false;
        on_ready(0);
      }) {}

Result<void> Listener::listen(std::string_view address, std::uint16_t port) {
  const auto failed = [&](const std::error_code& error) {
    close();
    return Error{ErrorKind::kInternal, "cannot listen on " + std::string(address) + ":" +
                                           std::to_string(port) + ": " + error.message()};
  };
  std::error_code error;
  const auto ip = asio::ip::make_address(std::string(address), error);
  if (error) return failed(error);
  asio::ip::tcp::endpoint endpoint(ip, port);
  socket_ = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                     IPPROTO_TCP);
  if (socket_ < 0 || !set_option(socket_, SOL_SOCKET, SO_REUSEADDR, 1) ||
      !set_option(socket_, SOL_SOCKET, SO_REUSEPORT, 1) ||
      !set_option(socket_, SOL_SOCKET, SO_KEEPALIVE, 1) ||
      !set_option(socket_, IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdle) ||
      !set_option(socket_, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveInterval) ||
      !set_option(socket_, IPPROTO_TCP, TCP_NODELAY, 1) ||
      !set_option(socket_, IPPROTO_TCP, TCP_NOTSENT_LOWAT, options_.unsent_limit) ||
      ::bind(socket_, endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 ||
      ::listen(socket_, options_.backlog) != 0) {
    return failed({errno, std::system_category()});
  }
  auto size = static_cast<socklen_t>(endpoint.capacity());
  if (::getsockname(socket_, endpoint.data(), &size) != 0) {
    return failed({errno, std::system_category()});
  }
  endpoint.resize(size);
  port_ = endpoint.port();
  return {};
}

void Listener::start() {
  if (socket_ < 0) return;
  // Level-triggered: what is left in the queue after a turn is told again.
  const std::error_code error = reactor_.poller().add(socket_, EPOLLIN, *this);
  if (error) log_error("cannot wait for connections: " + error.message());
}

void Listener::close() {
  again_.cancel();
  if (socket_ < 0) return;
  reactor_.poller().remove(*this);
  ::close(socket_);
  socket_ = -1;
}

void Listener::on_ready(std::uint32_t) {
  if (resting_) return;
  for (int i = 0; i < kAcceptsPerTurn && socket_ >= 0; ++i) {
    asio::ip::tcp::endpoint client;
    auto size = static_cast<socklen_t>(client.capacity());
    const int accepted = ::accept4(socket_, client.data(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (accepted >= 0) {
      client.resize(size);
      accept_(accepted, client);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (out_of_descriptors(errno)) {
      log_error("cannot accept a connection: " +
                std::error_code(errno, std::system_category()).message() +
                " (raise the limit of open files, see `ulimit -n`)");
      resting_ = true;
      reactor_.arm(again_, kRest);
      return;
    }
    // That client has gone already.
  }
}

}  // namespace pointsman
