#include "net/socket_stream.h"

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/listener.h"
#include "net/upstream_pool.h"

namespace pointsman {
namespace {

// A stream and what it was told.
struct End final : Stream::Events {
  explicit End(StreamPtr opened) : stream(std::move(opened)) { stream->attach(*this); }
  ~End() { stream->close(); }
  void on_readable() override {
    ++readable;
    if (when_readable) when_readable();
  }
  void on_writable() override { ++writable; }

  StreamPtr stream;
  int readable = 0;
  int writable = 0;
  std::function<void()> when_readable;
};

class SocketStreamTest : public ::testing::Test {
 protected:
  SocketStreamTest() {
    int both[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both), 0);
    a_ = std::make_unique<End>(StreamPtr(new SocketStream(poller_, both[0])));
    b_ = std::make_unique<End>(StreamPtr(new SocketStream(poller_, both[1])));
    turn();  // the sockets' first edges
  }
  void turn() { poller_.wait(0); }
  std::string read(End& end, std::size_t size) {
    std::string bytes(size, '\0');
    last_ = end.stream->read(bytes.data(), size);
    bytes.resize(last_.bytes);
    return bytes;
  }

  Poller poller_;
  std::unique_ptr<End> a_;
  std::unique_ptr<End> b_;
  IoResult last_;
};

TEST_F(SocketStreamTest, TellsOnceWhenItIsAskedTo) {
  a_->stream->write("one");
  turn();
  EXPECT_EQ(b_->readable, 0);
  b_->stream->want_read();
  EXPECT_EQ(b_->readable, 0);
  turn();
  EXPECT_EQ(b_->readable, 1);
  turn();
  EXPECT_EQ(b_->readable, 1);
  EXPECT_EQ(read(*b_, 100), "one");
  b_->stream->want_read();
  turn();
  EXPECT_EQ(b_->readable, 1);
  a_->stream->write("two");
  turn();
  EXPECT_EQ(b_->readable, 2);
}

TEST_F(SocketStreamTest, TellsAgainOfWhatAReadLeft) {
  a_->stream->write("abcdef");
  for (const char* part : {"ab", "cd", "ef"}) {
    b_->stream->want_read();
    const int before = b_->readable;
    turn();
    EXPECT_EQ(b_->readable, before + 1);
    EXPECT_EQ(read(*b_, 2), part);
  }
  b_->stream->want_read();
  turn();
  EXPECT_EQ(read(*b_, 2), "");
  EXPECT_EQ(last_.status, IoResult::Status::kWouldBlock);
}

// The end comes with the last bytes, in one edge: the read that takes the bytes is short.
TEST_F(SocketStreamTest, AnEndThatComesWithTheLastBytesIsNotMissed) {
  a_->stream->write("last");
  a_->stream->shutdown_send();
  b_->stream->want_read();
  turn();
  EXPECT_EQ(read(*b_, 100), "last");
  b_->stream->want_read();
  turn();
  EXPECT_EQ(b_->readable, 2);
  EXPECT_EQ(read(*b_, 100), "");
  EXPECT_EQ(last_.status, IoResult::Status::kEnd);
}

// For an owner that has no room for what comes before the end.
TEST_F(SocketStreamTest, TellsOfAnEndBehindUnreadBytes) {
  a_->stream->write("unread");
  b_->stream->want_end();
  turn();
  EXPECT_EQ(b_->readable, 0);
  EXPECT_FALSE(b_->stream->ended());
  a_->stream->shutdown_send();
  turn();
  EXPECT_EQ(b_->readable, 1);
  EXPECT_TRUE(b_->stream->ended());
  // One that has been seen already is told too.
  b_->stream->want_end();
  turn();
  EXPECT_EQ(b_->readable, 2);
  EXPECT_EQ(read(*b_, 100), "unread");
}

TEST_F(SocketStreamTest, TellsWhenItCanBeWrittenAgain) {
  const std::string much(1 << 20, 'x');
  while (a_->stream->write(much).ok()) {
  }
  a_->stream->want_write();
  turn();
  EXPECT_EQ(a_->writable, 0);
  while (!read(*b_, 1 << 20).empty()) {
  }
  turn();
  EXPECT_EQ(a_->writable, 1);
}

TEST_F(SocketStreamTest, ItsOwnerMayGoWhileOthersOfTheSameRoundAreTold) {
  a_->stream->write("x");
  b_->stream->write("x");
  a_->stream->want_read();
  b_->stream->want_read();
  // Whichever is told first destroys the other.
  a_->when_readable = [&] { b_.reset(); };
  b_->when_readable = [&] { a_.reset(); };
  turn();
  turn();
  EXPECT_NE(a_ == nullptr, b_ == nullptr);
}

class Connecting : public ::testing::Test {
 protected:
  Connecting() { static_cast<void>(reactor_.poller()); }
  Reactor reactor_;
};

TEST_F(Connecting, AcceptedAndOpenedSocketsSendSmallWritesAtOnce) {
  int accepted = -1;
  Listener listener(reactor_, {}, [&](int socket, const asio::ip::tcp::endpoint& client) {
    accepted = socket;
    EXPECT_TRUE(client.address().is_loopback());
    reactor_.stop();
  });
  ASSERT_TRUE(listener.bind("127.0.0.1", 0).ok());
  ASSERT_TRUE(listener.listen().ok());
  listener.start();
  UpstreamPool pool(reactor_, {});
  std::error_code error;
  const UpstreamConnectionPtr opened =
      pool.open(0, {asio::ip::address_v4::loopback(), listener.port()}, error);
  ASSERT_TRUE(opened);
  reactor_.run();
  ASSERT_GE(accepted, 0);
  // A host that acknowledges nothing is noticed after that time, a silent engine never.
  const int connected = static_cast<SocketStream&>(opened->stream()).socket();
  int unacknowledged = 0;
  socklen_t length = sizeof(int);
  ::getsockopt(connected, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged, &length);
  EXPECT_EQ(unacknowledged, 30'000);
  for (const int socket : {accepted, connected}) {
    int no_delay = 0;
    int keepalive = 0;
    socklen_t size = sizeof(int);
    ::getsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &no_delay, &size);
    ::getsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &keepalive, &size);
    EXPECT_NE(no_delay, 0);
    EXPECT_NE(keepalive, 0);
  }
  ::close(accepted);
}

TEST_F(Connecting, ARefusedConnectionSaysSo) {
  std::uint16_t port = 0;
  {
    Listener listener(reactor_, {}, [](int socket, const auto&) { ::close(socket); });
    ASSERT_TRUE(listener.bind("127.0.0.1", 0).ok());
    ASSERT_TRUE(listener.listen().ok());
    port = listener.port();
  }
  const IntrusivePtr<SocketStream> stream(new SocketStream(reactor_.poller()));
  End end{StreamPtr(stream.get())};
  const std::error_code error = stream->connect({asio::ip::address_v4::loopback(), port});
  if (!error) {
    stream->want_write();
    while (end.writable == 0) reactor_.poller().wait(1000);
    EXPECT_EQ(stream->connect_error().value(), ECONNREFUSED);
  } else {
    EXPECT_EQ(error.value(), ECONNREFUSED);
  }
}

TEST_F(Connecting, IdleConnectionsAreTakenLastUsedFirstAndDroppedWhenTheReplicaCloses) {
  std::vector<int> accepted;
  Listener listener(reactor_, {}, [&](int socket, const auto&) { accepted.push_back(socket); });
  ASSERT_TRUE(listener.bind("127.0.0.1", 0).ok());
  ASSERT_TRUE(listener.listen().ok());
  listener.start();
  UpstreamPool pool(reactor_, {});
  std::error_code error;
  const asio::ip::tcp::endpoint replica(asio::ip::address_v4::loopback(), listener.port());
  UpstreamConnectionPtr first = pool.open(7, replica, error);
  UpstreamConnectionPtr second = pool.open(7, replica, error);
  const UpstreamConnection* const last = second.get();
  EXPECT_FALSE(second->reused());
  while (accepted.size() < 2) reactor_.poller().wait(1000);
  pool.keep(std::move(first));
  pool.keep(std::move(second));
  EXPECT_EQ(pool.idle_connections(), 2U);
  EXPECT_EQ(pool.take(6), nullptr);
  UpstreamConnectionPtr taken = pool.take(7);
  EXPECT_EQ(taken.get(), last);
  EXPECT_TRUE(taken->reused());
  pool.keep(std::move(taken));
  for (const int socket : accepted) ::close(socket);
  while (pool.idle_connections() > 0) reactor_.poller().wait(1000);
  EXPECT_EQ(pool.take(7), nullptr);
  EXPECT_EQ(pool.open_connections(), 0U);
}

TEST(PollingReactor, RunsPostedTasksAndTimersAndStops) {
  Reactor reactor;
  static_cast<void>(reactor.poller());
  int expired = 0;
  Timer timer([&] {
    ++expired;
    reactor.stop();
  });
  std::vector<int> order;
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) reactor.post([&order, i] { order.push_back(i); });
    reactor.post([&] {
      reactor.post([&order] { order.push_back(100); });
      reactor.arm(timer, std::chrono::milliseconds(60));
    });
  });
  reactor.run();
  other.join();
  EXPECT_EQ(expired, 1);
  ASSERT_EQ(order.size(), 101U);
  for (int i = 0; i <= 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

}  // namespace
}  // namespace pointsman
