#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/raw_socket.h"

namespace pointsman::test {

// One accepted connection of a FakeReplica.
class FakeConnection : public RawSocket {
 public:
  explicit FakeConnection(asio::ip::tcp::socket socket) : RawSocket(std::move(socket)) {
    std::error_code ignored;
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  }

  // The next request's head and body (Content-Length or chunked, as it came); empty where the
  // router has closed.
  std::string read_request() {
    std::string head = read_until("\r\n\r\n");
    if (!head.ends_with("\r\n\r\n")) return {};
    const std::size_t length = head.find("Content-Length: ");
    if (length != std::string::npos)
      return head + read_exactly(std::stoul(head.substr(length + 16)));
    if (head.find("Transfer-Encoding: chunked") != std::string::npos) {
      return head + read_until("0\r\n\r\n");
    }
    return head;
  }
  void send_json(std::string_view body, int status = 200) {
    send("HTTP/1.1 " + std::to_string(status) +
         " Some\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + std::string(body));
  }
  void begin_stream() {
    send(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
  }
  void send_chunk(std::string_view data) {
    char size[20];
    std::snprintf(size, sizeof size, "%zx\r\n", data.size());
    send(size + std::string(data) + "\r\n");
  }
  void end_stream() { send("0\r\n\r\n"); }
};

// A replica whose every byte the test decides: runs `serve` on a thread for each connection.
class FakeReplica {
 public:
  using Serve = std::function<void(FakeConnection&)>;

  explicit FakeReplica(Serve serve) : serve_(std::move(serve)) {
    acceptor_.open(asio::ip::tcp::v4());
    acceptor_.bind({asio::ip::address_v4::loopback(), 0});
    acceptor_.listen();
    port_ = acceptor_.local_endpoint().port();
    thread_ = std::thread([this] { accept(); });
  }
  ~FakeReplica() {
    stop_accepting();
    for (std::thread& thread : connections_) thread.join();
  }
  FakeReplica(const FakeReplica&) = delete;
  FakeReplica& operator=(const FakeReplica&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] int accepted() const { return accepted_; }

  // New connections are refused from here on.
  void stop_accepting() {
    if (!thread_.joinable()) return;
    stopping_ = true;
    ::shutdown(acceptor_.native_handle(), SHUT_RDWR);
    thread_.join();
    acceptor_.close();
  }

 private:
  void accept() {
    for (;;) {
      std::error_code error;
      asio::ip::tcp::socket socket = acceptor_.accept(error);
      if (error || stopping_) return;
      ++accepted_;
      connections_.emplace_back([this, connection = std::move(socket)]() mutable {
        FakeConnection served(std::move(connection));
        serve_(served);
      });
    }
  }

  const Serve serve_;
  asio::io_context io_;
  asio::ip::tcp::acceptor acceptor_{io_};
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> accepted_{0};
  std::thread thread_;
  std::vector<std::thread> connections_;
};

}  // namespace pointsman::test
