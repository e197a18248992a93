#include "net/socket_stream.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace pointsman {
namespace {

constexpr std::uint32_t kWatched = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;

constexpr std::size_t kSmallWrite = 2048;

std::error_code last_error() {
  return {errno, std::system_category()};
}

}  // namespace

SocketStream::SocketStream(Poller& poller, int socket) : Stream(poller), socket_(socket) {
  writable_ = true;
  // It fails where the kernel has no memory for one more; the client is then left to its time-out.
  if (watch()) SocketStream::close();
}

std::error_code SocketStream::watch() {
  open_ = true;
  return poller_.add(socket_, kWatched, *this);
}

std::error_code SocketStream::connect(const asio::ip::tcp::endpoint& endpoint) {
  const int family = endpoint.protocol().family();
  socket_ = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
  if (socket_ < 0) return last_error();
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(socket_, endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 &&
      errno != EINPROGRESS) {
    return last_error();
  }
  return watch();
}

std::error_code SocketStream::connect_error() const {
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  return {error, std::system_category()};
}

void SocketStream::on_ready(std::uint32_t events) {
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) ended_ = true;
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) readable_ = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) writable_ = true;
  tell();
}

IoResult SocketStream::read(char* to, std::size_t size) {
  for (;;) {
    const ssize_t got = ::recv(socket_, to, size, 0);
    if (got > 0) {
      // A short read took all there was; what comes later makes an edge of its own. Not so where
      // the end has been seen: its edge is past.
      if (static_cast<std::size_t>(got) < size && !ended_) readable_ = false;
      return {IoResult::Status::kOk, static_cast<std::size_t>(got)};
    }
    if (got == 0) return {IoResult::Status::kEnd};
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      return {IoResult::Status::kError, 0, last_error()};
    }
    readable_ = false;
    return {IoResult::Status::kWouldBlock};
  }
}

IoResult SocketStream::write(std::string_view first, std::string_view second) {
  // Two small parts are put together: copying them costs less than having the kernel gather them.
  std::array<char, kSmallWrite> joined;
  if (!second.empty() && first.size() + second.size() <= joined.size()) {
    std::memcpy(joined.data(), first.data(), first.size());
    std::memcpy(joined.data() + first.size(), second.data(), second.size());
    first = {joined.data(), first.size() + second.size()};
    second = {};
  }
  for (;;) {
    ssize_t sent = 0;
    if (second.empty()) {
      sent = ::send(socket_, first.data(), first.size(), MSG_NOSIGNAL);
    } else {
      iovec parts[2] = {{const_cast<char*>(first.data()), first.size()},
                        {const_cast<char*>(second.data()), second.size()}};
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = 2;
      sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
    }
    if (sent >= 0) {
      if (static_cast<std::size_t>(sent) < first.size() + second.size()) writable_ = false;
      return {IoResult::Status::kOk, static_cast<std::size_t>(sent)};
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      return {IoResult::Status::kError, 0, last_error()};
    }
    writable_ = false;
    return {IoResult::Status::kWouldBlock};
  }
}

void SocketStream::shutdown_send() {
  if (socket_ >= 0) ::shutdown(socket_, SHUT_WR);
}

void SocketStream::close() {
  events_ = nullptr;
  open_ = false;
  if (socket_ < 0) return;
  poller_.remove(*this);
  ::close(socket_);
  socket_ = -1;
}

void SocketStream::reset() {
  if (socket_ < 0) return;
  const linger at_once{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

}  // namespace pointsman
