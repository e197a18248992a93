#include "net/listener.h"

#include <cerrno>
#include <utility>

#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/log.h"

namespace pointsman {
namespace {

// Taken at one go, so that a flood of connections does not starve the ones that are served.
constexpr int kAcceptsPerWake = 64;

// Seconds. A client whose host died without a word is noticed within a few minutes.
constexpr int kKeepaliveIdle = 60;
constexpr int kKeepaliveInterval = 15;

bool set_option(int socket, int level, int name, int value) {
  return ::setsockopt(socket, level, name, &value, sizeof(value)) == 0;
}

bool out_of_descriptors(const std::error_code& error) {
  return error.value() == EMFILE || error.value() == ENFILE || error.value() == ENOBUFS ||
         error.value() == ENOMEM;
}

}  // namespace

Listener::Listener(Reactor& reactor, Options options, Accept accept)
    : reactor_(reactor),
      options_(options),
      accept_(std::move(accept)),
      acceptor_(reactor.io().get_executor()),
      again_([this] { wait(); }) {}

Listener::~Listener() = default;

Result<void> Listener::listen(std::string_view address, std::uint16_t port) {
  const auto failed = [&](const std::error_code& error) {
    std::error_code ignored;
    acceptor_.close(ignored);
    return Error{ErrorKind::kInternal, "cannot listen on " + std::string(address) + ":" +
                                           std::to_string(port) + ": " + error.message()};
  };
  std::error_code error;
  const auto ip = asio::ip::make_address(std::string(address), error);
  if (error) return failed(error);
  const asio::ip::tcp::endpoint endpoint(ip, port);
  acceptor_.open(endpoint.protocol(), error);
  if (error) return failed(error);
  const int socket = acceptor_.native_handle();
  if (!set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1) ||
      !set_option(socket, SOL_SOCKET, SO_REUSEPORT, 1) ||
      !set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1) ||
      !set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdle) ||
      !set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveInterval) ||
      !set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1) ||
      !set_option(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, options_.unsent_limit)) {
    return failed({errno, std::system_category()});
  }
  acceptor_.bind(endpoint, error);
  if (error) return failed(error);
  acceptor_.listen(options_.backlog, error);
  if (error) return failed(error);
  acceptor_.non_blocking(true, error);
  if (error) return failed(error);
  port_ = acceptor_.local_endpoint(error).port();
  return {};
}

void Listener::start() {
  wait();
}

void Listener::close() {
  again_.cancel();
  std::error_code ignored;
  acceptor_.close(ignored);
}

void Listener::wait() {
  if (!acceptor_.is_open()) return;
  acceptor_.async_wait(asio::socket_base::wait_read, [this](const std::error_code& error) {
    if (error || !acceptor_.is_open()) return;
    accept_ready();
  });
}

void Listener::accept_ready() {
  for (int i = 0; i < kAcceptsPerWake; ++i) {
    TcpSocket socket(reactor_.io().get_executor());
    asio::ip::tcp::endpoint client;
    std::error_code error;
    acceptor_.accept(socket, client, error);
    if (error == asio::error::would_block || error == asio::error::try_again) break;
    if (error && out_of_descriptors(error)) {
      log_error("cannot accept a connection: " + error.message() +
                " (raise the limit of open files, see `ulimit -n`)");
      reactor_.arm(again_, std::chrono::milliseconds(200));
      return;
    }
    if (error) continue;  // that client has gone already
    socket.non_blocking(true, error);
    if (error) continue;
    accept_(std::move(socket), client);
    if (!acceptor_.is_open()) return;
  }
  wait();
}

}  // namespace pointsman
