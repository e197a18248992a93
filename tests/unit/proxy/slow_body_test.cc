// Clients that send their bodies slowly: a body brings a least number of bytes a second, averaged
// over no more than the longest silence that it may have.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/stepped_proxy.h"

namespace pointsman::test {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class SlowBody : public ::testing::Test {
 protected:
  void TearDown() override {
    for (StepSocket* const socket : {&client_, &replica_}) socket->reset();
    EXPECT_TRUE(proxy_.until([&] { return proxy_.connections() == 0; }));
    EXPECT_EQ(proxy_.in_flight(), 0);
    EXPECT_EQ(proxy_.held_bytes(), 0);
  }
  static ProxyOptions options() {
    ProxyOptions options;
    options.limits.max_body = 100'000;
    options.limits.request_body = 0;
    options.limits.body_rate = 500;
    options.timeouts.client_body_gap = seconds(60);
    options.timeouts.client_idle = std::chrono::hours(24);
    return options;
  }
  static std::string head(std::size_t length) {
    return "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(length) +
           "\r\n\r\n";
  }
  // Sends the head and so much of the body, and waits until the replica has all that passes on.
  void begin_large() {
    client_.send(head(kLarge));
    send(40'000);
  }
  // The replica takes what has come.
  void send(std::size_t bytes) {
    sent_ += bytes;
    client_.send(std::string(bytes, 'x'));
    EXPECT_TRUE(proxy_.until([&] {
      if (!replica_.open()) replica_ = listener_.accept();
      replica_.receive();
      const std::size_t head_size = replica_.in().find("\r\n\r\n") + 4;
      return replica_.in().size() >= head_size + sent_;
    }));
  }
  bool timed_out() {
    proxy_.turn(4);
    client_.receive();
    return client_.in().starts_with("HTTP/1.1 408");
  }

  static constexpr std::size_t kLarge = 1 << 30;

  StepListener listener_;
  SteppedProxy proxy_{options()};
  ReplicaIndex index_ = proxy_.add(listener_.port());
  StepSocket client_ = proxy_.client();
  StepSocket replica_;
  std::size_t sent_ = 0;
};

// A byte every five seconds would last for as long as there are bytes.
TEST_F(SlowBody, OneThatIsHeldAndTricklesIsNotWaitedFor) {
  client_.send(head(1'000));
  int sent = 0;
  while (!timed_out() && sent < 100) {
    client_.send("x");
    ++sent;
    proxy_.turn(4);
    proxy_.advance(seconds(5));
  }
  // In a minute.
  EXPECT_GE(sent, 12);
  EXPECT_LE(sent, 13);
  EXPECT_THAT(client_.in(), HasSubstr("X-Pointsman-Error: body_timeout"));
  EXPECT_TRUE(proxy_.over(client_));
}

// Such a one has its replica already, which is not blamed.
TEST_F(SlowBody, OneThatStreamsThroughAndTricklesFreesItsReplica) {
  begin_large();
  EXPECT_EQ(proxy_.in_flight(), 1);
  int sent = 0;
  for (; !timed_out() && sent < 100; ++sent) {
    send(1);
    proxy_.advance(seconds(5));
  }
  EXPECT_GE(sent, 11);
  EXPECT_LE(sent, 13);
  EXPECT_THAT(client_.in(), HasSubstr("X-Pointsman-Error: body_timeout"));
  EXPECT_TRUE(proxy_.over(replica_));
  EXPECT_EQ(proxy_.in_flight(), 0);
  EXPECT_EQ(proxy_.fleet().status(index_)->health.faults, 0);
}

TEST_F(SlowBody, OneThatKeepsTheRateGoesOnForHours) {
  begin_large();
  for (int i = 0; i < 500; ++i) {
    proxy_.advance(seconds(50));
    ASSERT_FALSE(timed_out()) << i;
    send(25'000);
  }
}

// What came fast is no claim to be slow for longer than a silence may last.
TEST_F(SlowBody, NothingIsSavedUp) {
  begin_large();
  for (int i = 0; i < 20; ++i) send(50'000);
  proxy_.advance(seconds(59));
  EXPECT_FALSE(timed_out());
  proxy_.advance(seconds(2));
  EXPECT_TRUE(timed_out());
}

// While its replica takes nothing, a client cannot send.
TEST_F(SlowBody, TheTimeThatAReplicaTakesIsNotTheClients) {
  begin_large();
  const std::string piece(1 << 20, 'x');
  std::size_t more = 0;
  // Until everything in between is full.
  for (int idle = 0; idle < 200; ++idle) {
    const std::size_t took = client_.send(piece);
    more += took;
    if (took > 0) idle = 0;
    proxy_.turn();
  }
  for (int i = 0; i < 4; ++i) proxy_.advance(seconds(50));
  EXPECT_FALSE(timed_out());
  sent_ += more;
  send(0);
  send(1);
  proxy_.advance(seconds(55));
  EXPECT_FALSE(timed_out());
  proxy_.advance(seconds(6));
  EXPECT_TRUE(timed_out());
}

TEST_F(SlowBody, WithoutARateOnlySilenceEndsOne) {
  ProxyOptions any = options();
  any.limits.body_rate = 0;
  SteppedProxy proxy(any);
  proxy.add(listener_.port());
  StepSocket client = proxy.client();
  client.send(head(1'000));
  for (int i = 0; i < 100; ++i) {
    client.send("x");
    proxy.turn(4);
    proxy.advance(seconds(50));
  }
  client.receive();
  EXPECT_EQ(client.in(), "");
  proxy.advance(seconds(20));
  EXPECT_TRUE(proxy.told(client));
  EXPECT_THAT(client.in(), StartsWith("HTTP/1.1 408"));
}

}  // namespace
}  // namespace pointsman::test
