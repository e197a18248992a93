#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "net/asio.h"

namespace pointsman::test {

// A blocking connection on loopback that sends and receives plain bytes. Receiving gives up after
// ten seconds, so that a broken test ends.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port) {
    std::error_code error;
    socket_.connect({asio::ip::address_v4::loopback(), port}, error);
    EXPECT_FALSE(error) << error.message();
    timeval limit{10, 0};
    ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  void send(std::string_view bytes) {
    std::error_code ignored;
    asio::write(socket_, asio::buffer(bytes.data(), bytes.size()), ignored);
  }

  // Everything up to and with `end`; what came behind it is kept for the next call.
  std::string read_until(std::string_view end) {
    for (;;) {
      const std::size_t at = kept_.find(end);
      if (at != std::string::npos) {
        std::string result = kept_.substr(0, at + end.size());
        kept_.erase(0, at + end.size());
        return result;
      }
      if (!receive()) return std::exchange(kept_, {});
    }
  }

  std::string read_exactly(std::size_t size) {
    while (kept_.size() < size && receive()) {
    }
    std::string result = kept_.substr(0, size);
    kept_.erase(0, result.size());
    return result;
  }

  // Everything until the other side closes. A RST shows in last_error().
  std::string read_to_end() {
    while (receive()) {
    }
    return std::exchange(kept_, {});
  }

  // A head and the body that its Content-Length says.
  std::string read_answer() {
    std::string head = read_until("\r\n\r\n");
    const std::size_t at = head.find("Content-Length: ");
    if (at == std::string::npos) return head;
    return head + read_exactly(std::stoul(head.substr(at + 16)));
  }

  void shut_write() { socket_.shutdown(asio::ip::tcp::socket::shutdown_send); }
  void close() { socket_.close(); }
  void reset() {
    socket_.set_option(asio::socket_base::linger(true, 0));
    socket_.close();
  }
  [[nodiscard]] std::error_code last_error() const { return error_; }

 private:
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

  asio::io_context io_;
  asio::ip::tcp::socket socket_{io_};
  std::string kept_;
  std::error_code error_;
};

}  // namespace pointsman::test
