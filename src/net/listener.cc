#include "net/listener.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "net/own_lack.h"

namespace pointsman {
namespace {

// Taken at one go, so that a flood of connections does not starve the ones that are served.
constexpr int kAcceptsPerTurn = 64;

// Seconds. A client whose host died without a word is noticed within a few minutes.
constexpr int kKeepaliveIdle = 60;
constexpr int kKeepaliveInterval = 15;

constexpr Duration kRest = std::chrono::milliseconds(200);

// A shortage is told again after this long without one.
constexpr Duration kShortageOver = std::chrono::minutes(1);

bool set_option(int socket, int level, int name, int value) {
  return ::setsockopt(socket, level, name, &value, sizeof(value)) == 0;
}

// A new descriptor is the lowest free one: one of this number means that as many are in use.
int first_reserved_descriptor() {
  rlimit limit{};
  constexpr int kMost = std::numeric_limits<int>::max();
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMost;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur - limit.rlim_cur / 4, kMost));
}

}  // namespace

Listener::Listener(Reactor& reactor, Options options, Accept accept)
    : reactor_(reactor),
      options_(options),
      accept_(std::move(accept)),
      again_([this] { on_rest_over(); }) {}

Result<void> Listener::bind(std::string_view address, std::uint16_t port) {
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
      // While bound only, the port would be free for whoever asks to reuse addresses.
      !set_option(socket_, SOL_SOCKET, SO_REUSEADDR, 0)) {
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

Result<void> Listener::listen() {
  // Clients' connections inherit it: those in TIME_WAIT may not keep a restart from the port.
  if (set_option(socket_, SOL_SOCKET, SO_REUSEADDR, 1) &&
      ::listen(socket_, options_.backlog) == 0) {
    return {};
  }
  const std::error_code error(errno, std::system_category());
  return Error{ErrorKind::kInternal,
               "cannot listen on port " + std::to_string(port_) + ": " + error.message()};
}

void Listener::start() {
  if (socket_ < 0) return;
  first_reserved_ = first_reserved_descriptor();
  // Edge-triggered: connections that wait while this rests would be told without end.
  const std::error_code error = reactor_.poller().add(socket_, EPOLLIN | EPOLLET, *this);
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
      if (accepted >= first_reserved_) return rest("three quarters of the descriptors are in use");
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    const std::error_code error(errno, std::system_category());
    if (is_own_lack(error)) return rest(error.message());
    // That client has gone already.
  }
  if (socket_ >= 0) reactor_.poller().soon(*this);
}

void Listener::rest(std::string_view why) {
  const TimePoint now = reactor_.now();
  if (last_rest_at_ == TimePoint{} || now - last_rest_at_ > kShortageOver) {
    log_error("new connections wait: " + std::string(why) +
              " (raise the limit of open files, see `ulimit -n`)");
  }
  last_rest_at_ = now;
  resting_ = true;
  reactor_.arm(again_, kRest);
}

void Listener::on_rest_over() {
  const int lowest_free = ::fcntl(socket_, F_DUPFD_CLOEXEC, 0);
  const bool enough = lowest_free >= 0 && lowest_free < first_reserved_;
  if (lowest_free >= 0) ::close(lowest_free);
  if (!enough) return rest("three quarters of the descriptors are in use");
  resting_ = false;
  on_ready(0);
}

}  // namespace pointsman
