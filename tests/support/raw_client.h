#pragma once

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "support/raw_socket.h"

namespace pointsman::test {

// A client's connection to a port of loopback.
class RawClient : public RawSocket {
 public:
  explicit RawClient(std::uint16_t port) : RawSocket(connected(port)) {}

  // A head and the body that its Content-Length says.
  std::string read_answer() {
    std::string head = read_until("\r\n\r\n");
    const std::size_t at = head.find("Content-Length: ");
    if (at == std::string::npos) return head;
    return head + read_exactly(std::stoul(head.substr(at + 16)));
  }

  // Sends `bytes` again and again, until the other side has taken nothing for a tenth of a second.
  void fill(std::string_view bytes) {
    const int socket = socket_.native_handle();
    const timeval limit{0, 100'000};
    const timeval none{0, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    while (::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
  }

  void shut_write() { socket_.shutdown(asio::ip::tcp::socket::shutdown_send); }

 private:
  static asio::ip::tcp::socket connected(std::uint16_t port) {
    static asio::io_context io;  // only names the system's sockets; nothing runs on it
    asio::ip::tcp::socket socket(io);
    std::error_code error;
    socket.connect({asio::ip::address_v4::loopback(), port}, error);
    EXPECT_FALSE(error) << error.message();
    return socket;
  }
};

}  // namespace pointsman::test
