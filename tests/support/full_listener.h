#pragma once

#include <cstdint>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pointsman::test {

// A port on loopback at which connecting neither succeeds nor fails: the listener accepts nothing,
// its queue is full, and the kernel drops further SYNs.
class FullListener {
 public:
  FullListener() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_, as_sockaddr(), sizeof(address_)), 0);
    socklen_t size = sizeof(address_);
    EXPECT_EQ(::getsockname(listener_, as_sockaddr(), &size), 0);
    // A queue of length 0 takes one connection; the next ones show that no more go in.
    EXPECT_EQ(::listen(listener_, 0), 0);
    for (int i = 0; i < 3; ++i) {
      const int waiting = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      (void)::connect(waiting, as_sockaddr(), sizeof(address_));
      waiting_.push_back(waiting);
    }
  }
  ~FullListener() {
    for (const int waiting : waiting_) ::close(waiting);
    ::close(listener_);
  }
  FullListener(const FullListener&) = delete;
  FullListener& operator=(const FullListener&) = delete;

  [[nodiscard]] std::uint16_t port() const { return ntohs(address_.sin_port); }

 private:
  [[nodiscard]] sockaddr* as_sockaddr() { return reinterpret_cast<sockaddr*>(&address_); }

  int listener_ = -1;
  sockaddr_in address_{};
  std::vector<int> waiting_;
};

}  // namespace pointsman::test
