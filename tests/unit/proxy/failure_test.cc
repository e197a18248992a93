// What becomes of a request whose replica fails: retries, their limits, and what is never retried.

#include <atomic>
#include <string>

#include "support/full_listener.h"
#include "support/proxy_test.h"

namespace pointsman::test {
namespace {

void serve_good(FakeConnection& connection) {
  while (!connection.read_request().empty()) connection.send_json(R"({"id":"good"})");
}

class Failure : public ::testing::Test {
 protected:
  // The first try meets `bad`, whichever replica it reaches; all others are served well.
  void start(FakeReplica::Serve bad, int replicas = 2) {
    bad_ = std::move(bad);
    for (int i = 0; i < replicas; ++i) {
      replicas_.push_back(std::make_unique<FakeReplica>([this](FakeConnection& connection) {
        ++tries_;
        if (!first_taken_.exchange(true)) return bad_(connection);
        serve_good(connection);
      }));
      indices_.push_back(rig_.add(replicas_.back()->port()));
    }
    rig_.start();
  }
  std::string ask(const std::string& path = "/v1/chat/completions",
                  const std::string& body = kChat) {
    RawClient client(rig_.port());
    client.send(post(path, body, "Connection: close\r\n"));
    const std::string answer = client.read_to_end();
    EXPECT_TRUE(ProxyRig::eventually([&] {
      for (const ReplicaIndex index : indices_) {
        if (rig_.in_flight(index) != 0) return false;
      }
      return true;
    }));
    return answer;
  }
  void TearDown() override { rig_.stop(); }

  FakeReplica::Serve bad_;
  std::atomic<bool> first_taken_{false};
  std::atomic<int> tries_{0};
  std::vector<std::unique_ptr<FakeReplica>> replicas_;
  std::vector<ReplicaIndex> indices_;
  ProxyRig rig_;
};

TEST_F(Failure, WhatIsNoHttpIsABadAnswerWithItsReason) {
  struct Answer {
    const char* bytes;
    const char* reason;
  };
  for (const Answer& answer : {
           Answer{"garbage\r\n\r\n", "not an HTTP status line"},
           Answer{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
                  "more than one Content-Length"},
           Answer{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                  "both Content-Length and Transfer-Encoding"},
           Answer{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4x\r\nabcd\r\n",
                  "the body's chunk framing is broken"},
           Answer{"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\n\r\n", "a folded header line"},
           Answer{"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
                  "a switch to another protocol that nobody asked for"},
       }) {
    FakeReplica replica([&](FakeConnection& connection) {
      connection.read_request();
      connection.send(answer.bytes);
      connection.read_to_end();
    });
    ProxyRig rig;
    rig.add(replica.port());
    rig.start();
    RawClient client(rig.port());
    client.send(post("/v1/chat/completions", kChat, "Connection: close\r\n"));
    const std::string told = client.read_to_end();
    EXPECT_THAT(told, StartsWith("HTTP/1.1 502")) << answer.bytes;
    EXPECT_THAT(told, HasSubstr("X-Pointsman-Error: bad_answer"));
    EXPECT_THAT(told,
                HasSubstr("the replica's answer is not valid HTTP: " + std::string(answer.reason)));
    rig.stop();
  }
}

TEST_F(Failure, AnAnswerWithTooLargeAHeadIsABadAnswer) {
  rig_.options().limits.head.max_size = 2048;
  start(
      [](FakeConnection& connection) {
        connection.read_request();
        connection.send("HTTP/1.1 200 OK\r\nX-A: " + std::string(4096, 'a'));
        connection.read_to_end();
      },
      1);
  EXPECT_THAT(ask(), HasSubstr("not valid HTTP: the head is too large"));
}

TEST_F(Failure, ABadAnswerIsTriedElsewhereAsALostOneIs) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.send("garbage\r\n\r\n");
    connection.read_to_end();
  });
  EXPECT_THAT(ask(), EndsWith(R"({"id":"good"})"));
  const auto index = static_cast<std::size_t>(RetryReason::kBadAnswer);
  EXPECT_EQ(rig_.sum([&](auto& shard) { return shard.retries[index].value(); }), 1);
  EXPECT_EQ(label(RetryReason::kBadAnswer), "bad_answer");
  EXPECT_EQ(label(RetryReason::kDraining), "draining");
}

TEST_F(Failure, ALostConnectionIsTriedElsewhere) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.reset();
  });
  EXPECT_THAT(ask(), EndsWith(R"({"id":"good"})"));
  EXPECT_EQ(tries_, 2);
}

TEST_F(Failure, AnAnswerWithoutABodyByteIsTriedElsewhere) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.send("HTTP/1.1 200 OK\r\nContent-Le");
    connection.close();
  });
  EXPECT_THAT(ask(), EndsWith(R"({"id":"good"})"));
}

// Its length is no reason to give a request up that has not been sent to anybody.
TEST(Refused, ABodyThatIsNotHeldIsTriedElsewhereWhileNothingIsSent) {
  auto dead = std::make_unique<FakeReplica>([](FakeConnection&) {});
  FakeReplica good(serve_good);
  ProxyOptions options;
  options.limits.max_body = 100'000;
  ProxyRig rig(options);
  rig.add(dead->port());
  rig.add(good.port());
  dead->stop_accepting();
  rig.start();
  for (int i = 0; i < 2; ++i) {
    RawClient client(rig.port());
    client.send(post("/v1/completions", std::string(2'000'000, ' ')));
    EXPECT_THAT(client.read_answer(), EndsWith(R"({"id":"good"})"));
  }
  EXPECT_EQ(rig.sum([](auto& shard) {
    return shard.retries[static_cast<std::size_t>(RetryReason::kRefused)].value();
  }),
            1);
  rig.stop();
}

TEST_F(Failure, WhatMayHaveBeenStoredIsNotSentAgain) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.close();
  });
  const std::string answer = ask("/v1/responses", R"({"model":"m1","input":"a","store":true})");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 502"));
  EXPECT_THAT(answer, HasSubstr("X-Pointsman-Error: connection_lost"));
  EXPECT_EQ(tries_, 1);
}

TEST_F(Failure, PathsThatMayStoreAreNotSentAgain) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.close();
  });
  EXPECT_THAT(ask("/v1/files", "{}"), StartsWith("HTTP/1.1 502"));
  EXPECT_EQ(tries_, 1);
}

TEST_F(Failure, StatusesThatSayNotHereAreTriedElsewhere) {
  for (const int status : {502, 503, 429}) {
    first_taken_ = false;
    replicas_.clear();
    indices_.clear();
    ProxyRig rig;
    std::atomic<bool> taken{false};
    const auto serve = [&](FakeConnection& connection) {
      if (taken.exchange(true)) return serve_good(connection);
      connection.read_request();
      connection.send_json(R"({"error":"busy"})", status);
      connection.read_to_end();
    };
    FakeReplica a(serve);
    FakeReplica b(serve);
    rig.add(a.port());
    rig.add(b.port());
    rig.start();
    RawClient client(rig.port());
    client.send(post("/v1/chat/completions", kChat));
    EXPECT_THAT(client.read_answer(), EndsWith(R"({"id":"good"})")) << status;
    rig.stop();
  }
}

// The body is for passing on alone: one that stalls or trickles does not keep the next try waiting.
TEST_F(Failure, AStatusThatSaysNotHereIsEnoughWhereItsBodyDoesNotCome) {
  rig_.options().timeouts.error_body = milliseconds(20);
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.send("HTTP/1.1 503 Some\r\nContent-Length: 100\r\n\r\nbus");
    connection.read_to_end();
  });
  EXPECT_THAT(ask(), EndsWith(R"({"id":"good"})"));
  EXPECT_EQ(tries_, 2);
}

TEST_F(Failure, ASlowErrorThatIsNoneOfThoseIsPassedOnAsItComes) {
  rig_.options().timeouts.error_body = milliseconds(20);
  std::promise<void> rest;
  start([&](FakeConnection& connection) {
    connection.read_request();
    connection.send("HTTP/1.1 500 Some\r\nContent-Length: 8\r\n\r\nbo");
    rest.get_future().wait();
    connection.send("om boo");
    connection.read_to_end();
  });
  RawClient client(rig_.port());
  client.send(post("/v1/chat/completions", kChat));
  EXPECT_THAT(client.read_until("bo"), StartsWith("HTTP/1.1 500 Some"));
  rest.set_value();
  EXPECT_EQ(client.read_exactly(6), "om boo");
  EXPECT_EQ(tries_, 1);
  client.close();
}

// The error of the first try is no first token, neither there nor of the answer that comes.
TEST(Retried, AStreamsFirstTokenIsItsOwn) {
  std::atomic<bool> taken{false};
  std::promise<void> end;
  const auto serve = [&](FakeConnection& connection) {
    connection.read_request();
    if (!taken.exchange(true)) return connection.send_json(R"({"error":"busy"})", 503);
    connection.begin_stream();
    connection.send_chunk(kToken);
    end.get_future().wait();
    connection.end_stream();
    connection.read_to_end();
  };
  FakeReplica a(serve);
  FakeReplica b(serve);
  ProxyRig rig;
  const ReplicaIndex first = rig.add(a.port());
  const ReplicaIndex second = rig.add(b.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", kStream));
  client.read_until(kToken);
  EXPECT_TRUE(ProxyRig::eventually(
      [&] { return rig.awaiting_first_token(first) + rig.awaiting_first_token(second) == 0; }));
  EXPECT_EQ(rig.in_flight(first) + rig.in_flight(second), 1);
  EXPECT_EQ(rig.sum([](const ProxyMetrics::Shard& shard) { return shard.ttft.value().count(); }),
            1U);
  end.set_value();
  client.read_until("0\r\n\r\n");
  client.close();
  rig.stop();
}

TEST_F(Failure, AnEngineThatShutsDownIsPassedOverAndTakenOut) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.send_json(R"({"error":"cannot schedule new futures after shutdown"})", 500);
    connection.read_to_end();
  });
  EXPECT_THAT(ask(), EndsWith(R"({"id":"good"})"));
  EXPECT_EQ(rig_.fleet().view()->pools[0].usable.size(), 1);
}

TEST_F(Failure, AnEnginesOwnErrorIsPassedOnAsItCame) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.send_json(R"({"error":  "boom"})", 500);
    connection.read_to_end();
  });
  const std::string answer = ask();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 500 Some"));
  EXPECT_THAT(answer, EndsWith(R"({"error":  "boom"})"));
  EXPECT_EQ(tries_, 1);
}

// It is held for another try up to a limit; beyond that it is the answer.
TEST_F(Failure, ALongErrorIsPassedOn) {
  const std::string body(70'000, 'e');
  start([&](FakeConnection& connection) {
    connection.read_request();
    connection.send_json(body, 503);
    connection.read_to_end();
  });
  const std::string answer = ask();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(answer, EndsWith(body));
  EXPECT_EQ(tries_, 1);
}

// A stream lost while it is queued or in prefill has sent its head and nothing else.
TEST_F(Failure, AStreamLostBeforeItsFirstByteIsTriedElsewhere) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    connection.reset();
  });
  EXPECT_THAT(ask("/v1/chat/completions", kStream), EndsWith(R"({"id":"good"})"));
}

TEST_F(Failure, AGatewayTimeOutIsNotTriedAgain) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.send_json("{}", 504);
    connection.read_to_end();
  });
  EXPECT_THAT(ask(), StartsWith("HTTP/1.1 504"));
  EXPECT_EQ(tries_, 1);
}

// Case D38: all fail, and the last error is the client's.
TEST(AllFail, TheLastErrorIsPassedOnAndTriesAreBounded) {
  std::atomic<int> tries{0};
  const auto serve = [&](FakeConnection& connection) {
    while (!connection.read_request().empty()) {
      ++tries;
      connection.send_json(R"({"error":"all busy"})", 503);
    }
  };
  FakeReplica a(serve);
  FakeReplica b(serve);
  FakeReplica c(serve);
  FakeReplica d(serve);
  ProxyRig rig;
  for (const FakeReplica* replica : {&a, &b, &c, &d}) rig.add(replica->port());
  rig.start();
  RawClient client(rig.port());
  for (int i = 0; i < 100; ++i) {
    client.send(post("/v1/chat/completions", kChat));
    const std::string answer = client.read_answer();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 Some"));
    EXPECT_THAT(answer, EndsWith(R"({"error":"all busy"})"));
    if (i == 0) {
      EXPECT_EQ(tries, 3);
    }
  }
  EXPECT_LE(tries, 100 + 20 + 2);
  rig.stop();
}

// Lost connections where nobody serves: the budget bounds the tries too.
TEST(AllFail, LostConnectionsAreWithinTheBudgetWhileNobodyServes) {
  std::atomic<int> tries{0};
  const auto serve = [&](FakeConnection& connection) {
    connection.read_request();
    ++tries;
    connection.close();
  };
  FakeReplica a(serve);
  FakeReplica b(serve);
  ProxyRig rig;
  rig.add(a.port());
  rig.add(b.port());
  rig.start();
  for (int i = 0; i < 40; ++i) {
    RawClient client(rig.port());
    client.send(post("/v1/chat/completions", kChat));
    EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 502"));
  }
  EXPECT_LE(tries, 40 + 10);
  rig.stop();
}

// With another replica that serves, no request is lost to one that loses each, budget or not.
TEST(OneFails, LostConnectionsAreOutsideTheBudgetWhileAnotherServes) {
  FakeReplica bad([](FakeConnection& connection) {
    connection.read_request();
    connection.close();
  });
  FakeReplica good(serve_good);
  ProxyOptions options;
  options.retry.budget_min = 0;
  options.retry.budget_share = 0;
  ProxyRig rig(options);
  rig.add(good.port());
  rig.add(bad.port());
  rig.start();
  RawClient first(rig.port());
  first.send(post("/v1/chat/completions", kChat));
  EXPECT_THAT(first.read_answer(), EndsWith(R"({"id":"good"})"));
  for (int i = 0; i < 6; ++i) {
    RawClient client(rig.port());
    client.send(post("/v1/chat/completions", kChat));
    EXPECT_THAT(client.read_answer(), EndsWith(R"({"id":"good"})")) << i;
  }
  rig.stop();
}

// Five own 5xx in a row take a replica out; 503 says that it is busy, and never does.
TEST(Ejection, IsForOwnErrorsAndNotForBeingBusy) {
  for (const int status : {500, 503}) {
    FakeReplica bad([&](FakeConnection& connection) {
      while (!connection.read_request().empty()) connection.send_json("{}", status);
    });
    FakeReplica good(serve_good);
    ProxyRig rig;
    const ReplicaIndex index = rig.add(bad.port());
    rig.add(good.port());
    rig.start();
    RawClient client(rig.port());
    for (int i = 0; i < 20; ++i) {
      client.send(post("/v1/chat/completions", kChat));
      client.read_answer();
    }
    EXPECT_EQ(rig.fleet().status(index)->usable, status == 503) << status;
    rig.stop();
  }
}

TEST(Refused, ConnectionsAreTriedElsewhereAndTheReplicaIsCutOff) {
  auto dead = std::make_unique<FakeReplica>([](FakeConnection&) {});
  FakeReplica good(serve_good);
  ProxyRig rig;
  const ReplicaIndex gone = rig.add(dead->port());
  rig.add(good.port());
  dead->stop_accepting();
  rig.start();
  RawClient client(rig.port());
  for (int i = 0; i < 10; ++i) {
    client.send(post("/v1/chat/completions", kChat));
    EXPECT_THAT(client.read_answer(), EndsWith(R"({"id":"good"})"));
  }
  EXPECT_EQ(rig.fleet().status(gone)->usable, false);
  EXPECT_EQ(rig.in_flight(gone), 0);
  rig.stop();
}

TEST(Connecting, ThatTakesTooLongIsTriedElsewhere) {
  const FullListener silent;
  FakeReplica good(serve_good);
  ProxyOptions options;
  options.timeouts.connect = milliseconds(100);
  ProxyRig rig(options);
  const ReplicaIndex slow = rig.add(silent.port());
  rig.add(good.port());
  rig.start();
  RawClient client(rig.port());
  for (int i = 0; i < 2; ++i) {
    client.send(post("/v1/chat/completions", kChat));
    EXPECT_THAT(client.read_answer(), EndsWith(R"({"id":"good"})"));
  }
  EXPECT_EQ(rig.sum([](auto& shard) {
    return shard.retries[static_cast<std::size_t>(RetryReason::kConnectTimeout)].value();
  }),
            1);
  // A time-out does not say that the replica is gone: it is a fault, and one alone does not eject.
  EXPECT_EQ(rig.fleet().status(slow)->usable, true);
  EXPECT_EQ(rig.in_flight(slow), 0);
  rig.stop();
}

TEST(Connecting, ThatTakesTooLongEverywhereIsABadGateway) {
  const FullListener silent;
  ProxyOptions options;
  options.timeouts.connect = milliseconds(100);
  ProxyRig rig(options);
  rig.add(silent.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", kChat));
  const std::string answer = client.read_answer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 502"));
  EXPECT_THAT(answer, HasSubstr("X-Pointsman-Error: connect_timeout"));
  rig.stop();
}

TEST(Refused, ByAllIsABadGateway) {
  auto dead = std::make_unique<FakeReplica>([](FakeConnection&) {});
  ProxyRig rig;
  rig.add(dead->port());
  dead->stop_accepting();
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", kChat));
  const std::string answer = client.read_answer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 502"));
  EXPECT_THAT(answer, HasSubstr("X-Pointsman-Error: connection_refused"));
  rig.stop();
}

// A reused connection that the replica has just closed says nothing about the replica.
TEST(Stale, ConnectionsAreReplacedWithoutARetry) {
  FakeReplica replica([](FakeConnection& connection) {
    connection.read_request();
    connection.send_json("{}");
    // The next request is read and never answered.
    connection.read_request();
    connection.reset();
  });
  ProxyRig rig;
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  for (int i = 0; i < 8; ++i) {
    client.send(post("/v1/files", "{}"));
    EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200")) << i;
  }
  EXPECT_GE(rig.sum([](auto& shard) { return shard.stale_resends.value(); }), 4);
  EXPECT_EQ(rig.sum([](auto& shard) { return shard.retries[2].value(); }), 0);
  EXPECT_TRUE(rig.fleet().status(index)->usable);
  rig.stop();
}

// Later than that a lost reused connection is a loss like any other.
TEST(Stale, IsOnlyWhatEndsSoonAfterTheRequest) {
  std::promise<void> go;
  const auto late = go.get_future().share();
  std::promise<void> asked;
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_request();
    connection.send_json("{}");
    if (connection.read_request().empty()) return;
    asked.set_value();
    late.wait();
    connection.reset();
  });
  ProxyOptions options;
  options.timeouts.stale = milliseconds(20);
  ProxyRig rig(options);
  rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", kChat));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  client.send(post("/v1/chat/completions", kChat));
  asked.get_future().wait();
  const auto end = std::chrono::steady_clock::now() + milliseconds(40);
  EXPECT_TRUE(ProxyRig::eventually([&] { return std::chrono::steady_clock::now() > end; }));
  go.set_value();
  const std::string answer = client.read_answer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 502"));
  EXPECT_THAT(answer, HasSubstr("X-Pointsman-Error: connection_lost"));
  EXPECT_EQ(rig.sum([](auto& shard) { return shard.stale_resends.value(); }), 0);
  rig.stop();
}

// What could not be sent again does not go over a connection that may prove to be stale.
TEST(Stale, ABodyThatIsNotHeldGoesOverAFreshConnection) {
  FakeReplica replica(serve_good);
  ProxyOptions options;
  options.limits.max_body = 100'000;
  ProxyRig rig(options);
  rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  for (const std::size_t size : {10, 2'000'000, 2'000'000}) {
    client.send(post("/v1/completions", std::string(size, ' ')));
    EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_EQ(replica.accepted(), 3);
  rig.stop();
}

TEST(Gone, ExchangesOfAGoneReplicaAreCutAndTheUntouchedOnesTriedElsewhere) {
  std::promise<void> both_there;
  std::atomic<int> there{0};
  std::promise<void> release;
  const auto released = release.get_future().share();
  FakeReplica hanging([&](FakeConnection& connection) {
    const std::string request = connection.read_request();
    if (request.find("stream") != std::string::npos) {
      connection.begin_stream();
      connection.send_chunk(kToken);
    }
    if (++there == 2) both_there.set_value();
    released.wait();
  });
  FakeReplica good(serve_good);
  ProxyRig rig;
  const ReplicaIndex gone = rig.add(hanging.port());
  rig.start();
  RawClient stream(rig.port());
  stream.send(post("/v1/chat/completions", kStream));
  stream.read_until("\n\n\r\n");
  RawClient plain(rig.port());
  plain.send(post("/v1/chat/completions", kChat));
  both_there.get_future().wait();
  rig.add(good.port());
  rig.fleet().probe_result(gone, {ProbeResult::Kind::kRefused, ""});
  rig.fleet().probe_result(gone, {ProbeResult::Kind::kRefused, ""});
  EXPECT_THAT(plain.read_answer(), EndsWith(R"({"id":"good"})"));
  const std::string rest = stream.read_to_end();
  EXPECT_THAT(rest, HasSubstr("\"error\""));
  EXPECT_THAT(rest, Not(HasSubstr("[DONE]")));
  EXPECT_THAT(rest, Not(HasSubstr("\r\n0\r\n\r\n")));
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(gone) == 0; }));
  release.set_value();
  rig.stop();
}

// Case D37.
TEST(ClientErrors, NeverCountAgainstAReplica) {
  FakeReplica replica([](FakeConnection& connection) {
    while (!connection.read_request().empty()) connection.send_json(R"({"error":"bad"})", 400);
  });
  ProxyRig rig;
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  for (int i = 0; i < 100; ++i) {
    client.send(post("/v1/chat/completions", "{not json"));
    EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 400"));
  }
  EXPECT_TRUE(rig.fleet().status(index)->usable);
  rig.stop();
}

TEST(Limits, ASilentReplicaEndsAsAGatewayTimeOutAndIsNotTriedAgain) {
  std::atomic<int> tries{0};
  const auto serve = [&](FakeConnection& connection) {
    connection.read_request();
    ++tries;
    connection.read_to_end();
  };
  FakeReplica a(serve);
  FakeReplica b(serve);
  ProxyOptions options;
  options.timeouts.first_byte_plain = std::chrono::milliseconds(100);
  ProxyRig rig(options);
  rig.add(a.port());
  rig.add(b.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", kChat));
  const std::string answer = client.read_answer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 504"));
  EXPECT_THAT(answer, HasSubstr("X-Pointsman-Error: first_byte_timeout"));
  EXPECT_EQ(tries, 1);
  rig.stop();
}

TEST(Limits, ASilenceWithinAStreamEndsItWithAnErrorEvent) {
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    connection.send_chunk(kToken);
    connection.read_to_end();
  });
  ProxyOptions options;
  options.timeouts.gap = std::chrono::milliseconds(100);
  ProxyRig rig(options);
  rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", kStream));
  const std::string answer = client.read_to_end();
  EXPECT_THAT(answer, HasSubstr(kToken));
  EXPECT_THAT(answer, HasSubstr("\"error\""));
  EXPECT_THAT(answer, Not(HasSubstr("[DONE]")));
  EXPECT_THAT(answer, Not(HasSubstr("\r\n0\r\n\r\n")));
  rig.stop();
}

}  // namespace
}  // namespace pointsman::test
