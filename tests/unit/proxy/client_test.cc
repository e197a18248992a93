// Clients that leave, stall, hesitate, or come in numbers.

#include <atomic>
#include <string>

#include "support/proxy_test.h"

namespace pointsman::test {
namespace {

enum class Leaving { kClose, kReset, kHalfClose };

class ClientGone : public ::testing::TestWithParam<Leaving> {
 protected:
  static void leave(RawClient& client) {
    switch (GetParam()) {
      case Leaving::kClose:
        return client.close();
      case Leaving::kReset:
        return client.reset();
      case Leaving::kHalfClose:
        return client.shut_write();
    }
  }
};

// Case D17.
TEST_P(ClientGone, MidStreamClosesTheReplicasConnectionAtOnce) {
  std::promise<std::chrono::steady_clock::time_point> closed;
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    for (int i = 0; i < 3; ++i) connection.send_chunk(kToken);
    connection.read_to_end();
    closed.set_value(std::chrono::steady_clock::now());
  });
  ProxyRig rig;
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", kStream));
  for (int i = 0; i < 3; ++i) client.read_until("\n\n\r\n");
  EXPECT_EQ(rig.in_flight(index), 1);
  const auto left = std::chrono::steady_clock::now();
  leave(client);
  EXPECT_LT(closed.get_future().get() - left, milliseconds(100));
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == 0; }));
  EXPECT_TRUE(rig.fleet().status(index)->usable);
  rig.stop();
}

// Whatever the size of its request: one that fits the input, held ones that do not, and one that
// streams through.
TEST_P(ClientGone, BeforeTheAnswerClosesTheReplicasConnectionAtOnce) {
  for (const std::size_t size : {10, 16'000, 20'000, 300'000, 2'000'000}) {
    std::promise<void> asked;
    std::promise<std::chrono::steady_clock::time_point> closed;
    FakeReplica replica([&](FakeConnection& connection) {
      connection.read_request();
      asked.set_value();
      connection.read_to_end();
      closed.set_value(std::chrono::steady_clock::now());
    });
    ProxyOptions options;
    options.limits.max_body = 1'000'000;
    ProxyRig rig(options);
    const ReplicaIndex index = rig.add(replica.port());
    rig.start();
    RawClient client(rig.port());
    client.send(post("/v1/chat/completions", std::string(size, ' ')));
    asked.get_future().wait();
    const auto left = std::chrono::steady_clock::now();
    leave(client);
    EXPECT_LT(closed.get_future().get() - left, milliseconds(100)) << size;
    EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == 0; }));
    EXPECT_TRUE(ProxyRig::eventually([&] {
      return rig.sum([](auto& shard) { return shard.requests_by_code[499].value(); }) == 1;
    }));
    rig.stop();
  }
}

// Requests that wait behind the one that is served do not hide the end.
TEST_P(ClientGone, WithFurtherRequestsSentIsSeenToo) {
  std::promise<void> asked;
  std::promise<void> closed;
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_request();
    asked.set_value();
    connection.read_to_end();
    closed.set_value();
  });
  ProxyRig rig;
  rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", kChat));
  asked.get_future().wait();
  client.send(post("/v1/chat/completions", std::string(50'000, ' ')));
  leave(client);
  EXPECT_EQ(closed.get_future().wait_for(std::chrono::seconds(5)), std::future_status::ready);
  rig.stop();
}

TEST_P(ClientGone, AmidItsOwnBodyLeavesNothingBehind) {
  FakeReplica replica([](FakeConnection&) {});
  ProxyRig rig;
  rig.add(replica.port());
  rig.start();
  for (const std::size_t sent : {5, 50'000}) {
    RawClient client(rig.port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" +
                std::string(sent, 'x'));
    leave(client);
  }
  EXPECT_TRUE(ProxyRig::eventually([&] {
    return rig.sum([](auto& shard) { return shard.client_connections_opened.value(); }) == 2 &&
           rig.sum([](auto& shard) { return shard.client_connections.value(); }) == 0;
  }));
  EXPECT_EQ(replica.accepted(), 0);
  rig.stop();
}

INSTANTIATE_TEST_SUITE_P(Ways, ClientGone,
                         ::testing::Values(Leaving::kClose, Leaving::kReset, Leaving::kHalfClose),
                         [](const auto& test) {
                           return std::string(test.param == Leaving::kClose   ? "Close"
                                              : test.param == Leaving::kReset ? "Reset"
                                                                              : "HalfClose");
                         });

// What a client does not read, the replica is not asked for.
TEST(SlowClient, StopsItsReplicaAndThenGetsEverything) {
  constexpr std::size_t kPieces = 2000;
  const std::string piece = "data: " + std::string(20'000, 'x') + "\n\n";
  std::atomic<std::size_t> sent{0};
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    for (std::size_t i = 0; i < kPieces; ++i) {
      connection.send_chunk(piece);
      sent = i + 1;
    }
    connection.end_stream();
  });
  ProxyOptions options;
  options.timeouts.gap = milliseconds(200);  // stands still while the client stalls
  ProxyRig rig(options);
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", kStream));
  client.read_until("\r\n\r\n");
  // The replica comes to a stop well before its 40 MB are sent.
  std::size_t before = 1;
  auto still_since = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - still_since < milliseconds(500)) {
    if (sent != before) {
      before = sent;
      still_since = std::chrono::steady_clock::now();
    }
    std::this_thread::yield();
  }
  EXPECT_LT(sent, kPieces / 2);
  std::size_t got = 0;
  for (std::size_t i = 0; i < kPieces; ++i) got += client.read_until("x\n\n\r\n").size();
  EXPECT_GT(got, kPieces * piece.size());
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "0\r\n\r\n");
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == 0; }));
  rig.stop();
}

TEST(SlowClient, IsClosedWhenItTakesNothingForTooLong) {
  const std::string piece(60'000, 'x');
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_request();
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 60000000\r\n\r\n");
    for (int i = 0; i < 1000; ++i) connection.send(piece);
  });
  ProxyOptions options;
  options.timeouts.client_stall = milliseconds(200);
  ProxyRig rig(options);
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", kChat));
  client.read_until("\r\n\r\n");
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == 0; }));
  EXPECT_EQ(rig.sum([](auto& shard) {
    return shard.cuts[static_cast<std::size_t>(CutReason::kClientStalled)].value();
  }),
            1);
  EXPECT_LT(client.read_to_end().size(), 60'000'000);
  rig.stop();
}

TEST(SlowClient, AHeadOrABodyThatDoesNotComeIsNotWaitedFor) {
  FakeReplica replica([](FakeConnection&) {});
  ProxyOptions options;
  options.timeouts.client_head = milliseconds(100);
  options.timeouts.client_body_gap = milliseconds(100);
  options.timeouts.client_idle = milliseconds(100);
  ProxyRig rig(options);
  rig.add(replica.port());
  rig.start();
  RawClient head(rig.port());
  head.send("POST /v1/x HTT");
  RawClient body(rig.port());
  body.send("POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  RawClient idle(rig.port());
  const std::string told = head.read_to_end();
  EXPECT_THAT(told, StartsWith("HTTP/1.1 408"));
  EXPECT_THAT(told, HasSubstr("X-Pointsman-Error: head_timeout"));
  EXPECT_THAT(body.read_to_end(), StartsWith("HTTP/1.1 408"));
  EXPECT_EQ(idle.read_to_end(), "");
  rig.stop();
}

TEST(SlowReplica, TakesALargeBodyAtItsOwnPace) {
  std::promise<std::string> seen;
  FakeReplica replica([&](FakeConnection& connection) {
    std::string all;
    for (;;) {
      const std::string part = connection.read_exactly(100'000);
      all += part;
      if (part.size() < 100'000 || all.find("END") != std::string::npos) break;
      std::this_thread::yield();
    }
    connection.send_json("{}");
    seen.set_value(all);
  });
  ProxyOptions options;
  options.limits.max_body = 1'000'000;
  ProxyRig rig(options);
  rig.add(replica.port());
  rig.start();
  std::string body(8'000'000 - 3, 'y');
  body += "END";
  const std::string request = post("/v1/completions", body);
  body.append((100'000 - request.size() % 100'000) % 100'000, ' ');
  RawClient client(rig.port());
  client.send(post("/v1/completions", body));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(seen.get_future().get(), HasSubstr("yyyEND"));
  rig.stop();
}

// A replica that stops taking a body is given up after the limit on silence.
TEST(SlowReplica, IsNotWaitedForWithoutEndToTakeABody) {
  std::promise<void> go;
  const auto released = go.get_future().share();
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_until("\r\n\r\n");
    released.wait();
  });
  ProxyOptions options;
  options.limits.max_body = 100'000;
  options.timeouts.gap = milliseconds(200);
  ProxyRig rig(options);
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 500000000\r\n\r\n");
  client.fill(std::string(1'000'000, 'x'));
  EXPECT_THAT(client.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 504"));
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == 0; }));
  go.set_value();
  rig.stop();
}

// Once the replica has taken what there was, it is the client who is waited for, by its own limit.
TEST(SlowReplica, IsNotBlamedForTheClientsPauses) {
  std::promise<void> go;
  const auto released = go.get_future().share();
  FakeReplica replica([&](FakeConnection& connection) {
    const std::string head = connection.read_until("\r\n\r\n");
    released.wait();
    connection.read_exactly(std::stoul(head.substr(head.find("Content-Length: ") + 16)));
    connection.send_json("{}");
    connection.read_to_end();
  });
  ProxyOptions options;
  options.limits.max_body = 100'000;
  // Long enough for a busy machine to get from the last byte taken to go.set_value().
  options.timeouts.gap = milliseconds(1500);
  options.timeouts.client_body_gap = milliseconds(2500);
  ProxyRig rig(options);
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 500000000\r\n\r\n");
  client.fill(std::string(1'000'000, 'x'));
  go.set_value();
  // The replica takes all; then the client pauses for longer than the replica may.
  EXPECT_THAT(client.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 408"));
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == 0; }));
  EXPECT_EQ(rig.fleet().status(index)->health.faults, 0);
  rig.stop();
}

// It takes nothing of a large body; a client that breaks off is noticed at once. (A FIN waits
// behind what the client's kernel could not send, and so is not seen until then.)
TEST(SlowReplica, DoesNotHideThatTheClientHasBrokenOff) {
  std::promise<void> go;
  const auto released = go.get_future().share();
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_until("\r\n\r\n");
    released.wait();
  });
  ProxyOptions options;
  options.limits.max_body = 100'000;
  ProxyRig rig(options);
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 500000000\r\n\r\n");
  client.fill(std::string(1'000'000, 'x'));
  EXPECT_EQ(rig.in_flight(index), 1);
  client.reset();
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == 0; }));
  go.set_value();
  rig.stop();
}

// An early refusal of a body that is still being sent reaches the client.
TEST(SlowReplica, MayRefuseABodyBeforeItIsWhole) {
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_until("\r\n\r\n");
    connection.send(
        "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge");
    connection.read_to_end();
  });
  ProxyOptions options;
  options.limits.max_body = 100'000;
  ProxyRig rig(options);
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n" +
              std::string(40'000, 'x'));
  const std::string answer = client.read_answer();
  EXPECT_THAT(answer, EndsWith("large"));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n")) << "the rest of the body is not read";
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == 0; }));
  rig.stop();
}

// A thousand streams at once through one reactor.
TEST(ManyStreams, AllCompleteAndNoChargeIsLeft) {
  constexpr int kStreams = 1000;
  std::atomic<int> there{0};
  std::promise<void> go;
  const auto released = go.get_future().share();
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    connection.send_chunk(kToken);
    ++there;
    released.wait();
    for (int i = 0; i < 5; ++i) connection.send_chunk(kToken);
    connection.send_chunk("data: [DONE]\n\n");
    connection.end_stream();
  });
  ProxyRig rig({}, "least_work");
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(rig.port()));
    clients.back()->send(post("/v1/chat/completions", kStream));
  }
  EXPECT_TRUE(ProxyRig::eventually([&] { return there == kStreams; }));
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == kStreams; }));
  go.set_value();
  for (const auto& client : clients) {
    const std::string answer = client->read_until("\r\n0\r\n\r\n");
    EXPECT_THAT(answer, HasSubstr("[DONE]"));
  }
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == 0; }));
  clients.clear();
  EXPECT_TRUE(ProxyRig::eventually(
      [&] { return rig.sum([](auto& shard) { return shard.client_connections.value(); }) == 0; }));
  rig.stop();
}

}  // namespace
}  // namespace pointsman::test
