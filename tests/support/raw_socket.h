#pragma once

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "net/asio.h"

namespace pointsman::test {

// One end of a connection that sends and receives plain bytes, blocking. Receiving gives up after
// ten seconds, so that a broken test ends.
class RawSocket {
 public:
  void send(std::string_view bytes) {
    std::error_code ignored;
    asio::write(socket_, asio::buffer(bytes.data(), bytes.size()), ignored);
  }

  // Everything up to and with `end`, what came behind it is kept for the next call; where the other
  // side closes first, what came until then.
  std::string read_until(std::string_view end) {
    for (;;) {
      const std::size_t at = kept_.find(end);
      if (at != std::string::npos) return take(at + end.size());
      if (!receive()) return std::exchange(kept_, {});
    }
  }
  // So many bytes; fewer where the other side closes first.
  std::string read_exactly(std::size_t size) {
    while (kept_.size() < size && receive()) {
    }
    return take(size);
  }
  // Everything until the other side closes. A RST shows in last_error().
  std::string read_to_end() {
    while (receive()) {
    }
    return std::exchange(kept_, {});
  }
  [[nodiscard]] std::error_code last_error() const { return error_; }

  void close() {
    std::error_code ignored;
    socket_.close(ignored);
  }
  // Closes with a RST.
  void reset() {
    std::error_code ignored;
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
    socket_.close(ignored);
  }

 protected:
  // An open one.
  explicit RawSocket(asio::ip::tcp::socket socket) : socket_(std::move(socket)) {
    timeval limit{10, 0};
    ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~RawSocket() = default;

  asio::ip::tcp::socket socket_;

 private:
  std::string take(std::size_t size) {
    std::string taken = kept_.substr(0, size);
    kept_.erase(0, taken.size());
    return taken;
  }
  bool receive() {
    char bytes[16384];
    const ssize_t size = ::recv(socket_.native_handle(), bytes, sizeof bytes, 0);
    if (size > 0) {
      kept_.append(bytes, static_cast<std::size_t>(size));
      return true;
    }
    error_ = size == 0 ? std::error_code(asio::error::eof)
                       : std::error_code(errno, std::generic_category());
    return false;
  }

  std::string kept_;
  std::error_code error_;
};

}  // namespace pointsman::test
