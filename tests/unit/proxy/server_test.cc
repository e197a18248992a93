// The data plane as a whole: threads, models, pins, upgrades, and leaving.

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "support/proxy_test.h"
#include "support/test_data.h"

namespace pointsman::test {
namespace {

FakeReplica::Serve says(const std::string& name) {
  return [name](FakeConnection& connection) {
    while (!connection.read_request().empty()) connection.send_json(name);
  };
}

std::string model(std::string_view name) {
  return R"({"model":)" + std::string(name) + R"(,"messages":[]})";
}

// Case D52.
TEST(Models, UnknownOnesAreRefusedInTheHandedForm) {
  FakeReplica a(says("a"));
  FakeReplica b(says("b"));
  ProxyRig rig;
  rig.fleet().set_models(rig.add(a.port()), {{"m1"}});
  rig.fleet().set_models(rig.add(b.port()), {{"org/m2"}});
  rig.start();
  RawClient client(rig.port());
  const auto ask = [&](const std::string& body) {
    client.send(post("/v1/chat/completions", body));
    return client.read_answer();
  };
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(ask(model(R"("m1")")), EndsWith("\r\n\r\na"));
    EXPECT_THAT(ask(model(R"("org/m2")")), EndsWith("\r\n\r\nb"));
  }
  for (const char* name : {R"("M1")", R"(" m1 ")", R"("no-such")"}) {
    EXPECT_THAT(ask(model(name)), StartsWith("HTTP/1.1 404")) << name;
  }
  EXPECT_THAT(
      ask(model(R"("no-such")")),
      EndsWith(R"({"error":{"message":"the model `no-such` does not exist",)"
               R"("type":"invalid_request_error","param":"model","code":"model_not_found"}})"));
  EXPECT_THAT(ask(model("null")), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(R"({"messages":[]})"), StartsWith("HTTP/1.1 400"));
  // What does not parse is the engine's to refuse.
  EXPECT_THAT(ask(R"({"messages":)"), StartsWith("HTTP/1.1 200"));
  rig.stop();
}

TEST(Models, AreNotAskedForWhereOneIsServed) {
  FakeReplica a(says("a"));
  ProxyRig rig;
  rig.fleet().set_models(rig.add(a.port()), {{"m1"}});
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", R"({"messages":[]})"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  client.send(post("/v1/chat/completions", model("null")));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  rig.stop();
}

TEST(Models, AReplicaWithoutAListMayServeAnything) {
  FakeReplica a(says("a"));
  FakeReplica b(says("b"));
  ProxyRig rig;
  rig.fleet().set_models(rig.add(a.port()), {{"m1"}});
  rig.add(b.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", model(R"("no-such")")));
  EXPECT_THAT(client.read_answer(), EndsWith("\r\n\r\nb"));
  rig.stop();
}

TEST(Models, AreAskedForAgainBeforeOneIsRefused) {
  FakeReplica a(says("a"));
  ProxyRig rig;
  const ReplicaIndex index = rig.add(a.port());
  rig.fleet().set_models(index, {{"m1"}});
  std::atomic<int> asked{0};
  rig.refresh_models = [&](Reactor& reactor, std::function<void()> done) {
    if (++asked == 1) rig.fleet().set_models(index, {{"m1", "new"}});
    reactor.post(std::move(done));
  };
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", model(R"("new")")));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  client.send(post("/v1/chat/completions", model(R"("newer")")));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 404"));
  EXPECT_EQ(asked, 2);
  rig.stop();
}

TEST(Models, TheListIsTheRoutersOwn) {
  FakeReplica a(says("a"));
  ProxyRig rig;
  rig.add(a.port());
  rig.append_models = [](std::string& out) { out += R"({"object":"list","data":[]})"; };
  rig.start();
  RawClient client(rig.port());
  client.send(get("/v1/models"));
  EXPECT_THAT(client.read_answer(), EndsWith(R"({"object":"list","data":[]})"));
  client.send(get("/v1/models/m1"));
  EXPECT_THAT(client.read_answer(), EndsWith("\r\n\r\na"));
  rig.stop();
}

TEST(Models, AreNotKnownWhileNoReplicaIsUsable) {
  ProxyRig rig;
  rig.append_models = [](std::string& out) { out += R"({"object":"list","data":[]})"; };
  rig.start();
  RawClient client(rig.port());
  client.send(get("/v1/models"));
  const std::string answer = client.read_answer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(answer, HasSubstr("X-Pointsman-Error: no_replica"));
  EXPECT_THAT(answer, HasSubstr("Retry-After: 1"));
  rig.stop();
}

// Case D53: a form's model part is read, and the form goes on byte for byte.
TEST(Models, AreReadFromForms) {
  std::promise<std::string> seen;
  FakeReplica a([&](FakeConnection& connection) {
    seen.set_value(connection.read_request());
    connection.send(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\n1\n00");
    connection.read_to_end();
  });
  FakeReplica b(says("b"));
  ProxyRig rig;
  rig.fleet().set_models(rig.add(a.port()), {{"m1"}});
  rig.fleet().set_models(rig.add(b.port()), {{"m2"}});
  rig.start();
  const std::string form = test_data("api/transcription.multipart");
  RawClient client(rig.port());
  client.send(post("/v1/audio/transcriptions", form,
                   "Content-Type: multipart/form-data; boundary=sep-7\r\n"));
  EXPECT_THAT(client.read_answer(), EndsWith("\r\n\r\n1\n00"));
  EXPECT_THAT(seen.get_future().get(), EndsWith("\r\n\r\n" + form));
  rig.stop();
}

// Case D51.
TEST(Bodies, ArriveByteForByte) {
  const std::string body = test_data("api/unknown-fields.json");
  std::promise<std::string> seen;
  FakeReplica a([&](FakeConnection& connection) {
    seen.set_value(connection.read_request());
    connection.send_json("{}");
    connection.read_to_end();
  });
  ProxyRig rig;
  rig.add(a.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", body));
  client.read_answer();
  EXPECT_THAT(seen.get_future().get(), EndsWith("\r\n\r\n" + body));
  rig.stop();
}

// Case D56: responses stay with the replica that has them, learnt from plain and streamed answers.
class Pins : public ::testing::Test {
 protected:
  Pins() {
    for (int i = 0; i < 4; ++i) {
      replicas_.push_back(std::make_unique<FakeReplica>([this, i](FakeConnection& connection) {
        for (std::string request = connection.read_request(); !request.empty();
             request = connection.read_request()) {
          last_ = i;
          const std::string id = "resp_" + std::to_string(++made_);
          if (request.find("\"stream\"") == std::string::npos) {
            connection.send_json(R"({"id":")" + id + R"(","object":"response","output":[]})");
            continue;
          }
          connection.begin_stream();
          connection.send_chunk(
              "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":"
              "\"" +
              id + "\"}}\n\n");
          connection.send_chunk(
              "event: response.output_text.delta\ndata: "
              "{\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n");
          connection.end_stream();
        }
      }));
      indices_.push_back(rig_.add(replicas_.back()->port()));
    }
    rig_.start();
  }
  ~Pins() override { rig_.stop(); }

  int ask(const std::string& path, const std::string& body) {
    RawClient client(rig_.port());
    client.send(post(path, body, "Connection: close\r\n"));
    EXPECT_THAT(client.read_to_end(), StartsWith("HTTP/1.1 200"));
    return last_;
  }
  // Sends the round robin elsewhere.
  void turn() { ask("/v1/chat/completions", kChat); }

  std::atomic<int> last_{-1};
  std::atomic<int> made_{0};
  std::vector<std::unique_ptr<FakeReplica>> replicas_;
  std::vector<ReplicaIndex> indices_;
  ProxyRig rig_;
};

TEST_F(Pins, AResponseIsContinuedWhereItWasMade) {
  const int home = ask("/v1/responses", R"({"model":"m1","input":"a"})");
  for (int i = 1; i <= 6; ++i) {
    const std::string previous = "resp_" + std::to_string(made_.load());
    turn();
    EXPECT_EQ(ask("/v1/responses",
                  R"({"model":"m1","input":"b","previous_response_id":")" + previous + R"("})"),
              home);
  }
}

TEST_F(Pins, StreamedResponsesAreLearntToo) {
  const int home = ask("/v1/responses", R"({"model":"m1","input":"a","stream":true})");
  const std::string previous = "resp_" + std::to_string(made_.load());
  for (int i = 0; i < 3; ++i) {
    turn();
    EXPECT_EQ(ask("/v1/responses/" + previous + "/cancel", ""), home);
  }
}

TEST_F(Pins, AResponseWhoseReplicaIsGoneGoesElsewhereOnce) {
  const int home = ask("/v1/responses", R"({"model":"m1","input":"a"})");
  const std::string previous = "resp_" + std::to_string(made_.load());
  rig_.fleet().probe_result(indices_[static_cast<std::size_t>(home)],
                            {ProbeResult::Kind::kRefused, ""});
  rig_.fleet().probe_result(indices_[static_cast<std::size_t>(home)],
                            {ProbeResult::Kind::kRefused, ""});
  EXPECT_NE(ask("/v1/responses",
                R"({"model":"m1","input":"b","previous_response_id":")" + previous + R"("})"),
            home);
}

// Case D57.
// The first configured header that is there names the session; what other headers say, and the
// body, does not matter then.
TEST(Sessions, TheFirstConfiguredHeaderNamesThem) {
  std::vector<std::unique_ptr<FakeReplica>> replicas;
  ProxyRig rig({}, "session_affinity");
  for (int i = 0; i < 8; ++i) {
    replicas.push_back(std::make_unique<FakeReplica>(says("r" + std::to_string(i))));
    rig.add(replicas.back()->port());
  }
  rig.start();
  RawClient client(rig.port());
  const auto home = [&](const std::string& headers, int question) {
    client.send(post("/v1/chat/completions",
                     R"({"model":"m1","messages":[{"role":"user","content":")" +
                         std::to_string(question) + R"("}]})",
                     headers));
    const std::string answer = client.read_answer();
    return answer.substr(answer.find("\r\n\r\n"));
  };
  std::set<std::string> homes;
  for (int session = 0; session < 20; ++session) {
    const std::string name = std::to_string(session);
    const std::string first = home("X-Session-Id: " + name + "\r\n", 1);
    homes.insert(first);
    EXPECT_EQ(home("session_id: other\r\nx-session-id: " + name + "\r\n", 2), first);
    EXPECT_EQ(home("x-claude-code-session-id: " + name + "\r\n", 3), first);
    EXPECT_EQ(home("x-session-affinity: " + name + "\r\nsession-id: b\r\n", 4), first);
    EXPECT_EQ(home("session-id: " + name + "\r\nsession_id: b\r\n", 5), first);
    EXPECT_EQ(home("session_id: " + name + "\r\n", 6), first);
  }
  EXPECT_GE(homes.size(), 4U) << "twenty sessions spread over eight replicas";
  rig.stop();
}

TEST(Upgrade, BytesGoBothWaysAndACloseReachesTheOtherSide) {
  std::promise<std::string> rest;
  std::promise<std::string> head;
  FakeReplica replica([&](FakeConnection& connection) {
    head.set_value(connection.read_until("\r\n\r\n"));
    connection.send(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Accept: x\r\n\r\nhello");
    connection.send(connection.read_exactly(4));
    rest.set_value(connection.read_to_end());
  });
  ProxyRig rig;
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send(
      "GET /v1/realtime?model=m1 HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n"
      "Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n");
  const std::string answer = client.read_until("\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 101"));
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.awaiting_first_token(index) == 0; }))
      << "the session is open, nothing is queued";
  EXPECT_EQ(rig.in_flight(index), 1);
  EXPECT_THAT(answer, HasSubstr("Upgrade: websocket\r\n"));
  EXPECT_THAT(answer, HasSubstr("Connection: Upgrade\r\n"));
  EXPECT_THAT(answer, HasSubstr("Sec-WebSocket-Accept: x\r\n"));
  const std::string sent = head.get_future().get();
  EXPECT_THAT(sent, HasSubstr("Upgrade: websocket\r\n"));
  EXPECT_THAT(sent, HasSubstr("Connection: Upgrade\r\n"));
  EXPECT_EQ(client.read_exactly(5), "hello");
  client.send("ping");
  EXPECT_EQ(client.read_exactly(4), "ping");
  client.close();
  EXPECT_EQ(rest.get_future().get(), "");
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == 0; }));
  rig.stop();
}

TEST(Upgrade, AReplicasCloseReachesTheClient) {
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_until("\r\n\r\n");
    connection.send(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    connection.send("bye");
  });
  ProxyRig rig;
  rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send(
      "GET /v1/realtime HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
  EXPECT_THAT(client.read_to_end(), EndsWith("bye"));
  rig.stop();
}

// Speech, for one: what it says is not understood, yet its prompt has been computed.
TEST(OtherPaths, TheFirstBodyByteIsTheFirstToken) {
  std::promise<void> begin;
  std::promise<void> end;
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_request();
    begin.get_future().wait();
    connection.send("HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nContent-Length: 8\r\n\r\nRIFF");
    end.get_future().wait();
    connection.send("data");
    connection.read_to_end();
  });
  ProxyRig rig;
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/audio/speech", R"({"model":"m1","input":"hi"})"));
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == 1; }));
  EXPECT_EQ(rig.awaiting_first_token(index), 1);
  begin.set_value();
  client.read_until("RIFF");
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.awaiting_first_token(index) == 0; }));
  EXPECT_EQ(rig.in_flight(index), 1);
  end.set_value();
  EXPECT_EQ(client.read_exactly(4), "data");
  client.close();
  rig.stop();
}

TEST(Leaving, LetsARunningStreamEndAndRefusesNewConnections) {
  std::promise<void> go;
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    connection.send_chunk("data: one\n\n");
    go.get_future().wait();
    connection.send_chunk("data: [DONE]\n\n");
    connection.end_stream();
  });
  ProxyRig rig;
  rig.add(replica.port());
  rig.start();
  RawClient idle(rig.port());
  idle.send(get("/readyz"));
  EXPECT_THAT(idle.read_answer(), StartsWith("HTTP/1.1 200"));
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", kStream));
  client.read_until("one\n\n\r\n");
  std::promise<void> drained;
  rig.server().drain([&] { drained.set_value(); });
  EXPECT_FALSE(rig.server().ready());
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_TRUE(ProxyRig::eventually([&] {
    asio::io_context io;
    asio::ip::tcp::socket socket(io);
    std::error_code error;
    socket.connect({asio::ip::address_v4::loopback(), rig.port()}, error);
    return error == asio::error::connection_refused;
  }));
  go.set_value();
  const std::string rest = client.read_to_end();
  EXPECT_THAT(rest, HasSubstr("[DONE]"));
  EXPECT_THAT(rest, EndsWith("\r\n0\r\n\r\n"));
  client.close();
  drained.get_future().wait();
  rig.stop();
}

TEST(Leaving, CutsWhatOutlastsTheGrace) {
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    connection.send_chunk("data: one\n\n");
    connection.read_to_end();
  });
  ProxyOptions options;
  options.timeouts.shutdown_grace = milliseconds(100);
  ProxyRig rig(options);
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", kStream));
  client.read_until("one\n\n\r\n");
  std::promise<void> drained;
  rig.server().drain([&] { drained.set_value(); });
  const std::string rest = client.read_to_end();
  EXPECT_THAT(rest, Not(EndsWith("\r\n0\r\n\r\n")));
  drained.get_future().wait();
  EXPECT_EQ(rig.in_flight(index), 0);
  rig.stop();
}

TEST(Leaving, ServesOnUnreadyForTheDelay) {
  FakeReplica replica(says("a"));
  ProxyOptions options;
  options.timeouts.shutdown_delay = milliseconds(300);
  ProxyRig rig(options);
  rig.add(replica.port());
  rig.start();
  std::promise<void> drained;
  rig.server().drain([&] { drained.set_value(); });
  RawClient client(rig.port());
  client.send(get("/readyz"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 503"));
  client.send(get("/healthz"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  client.send(post("/v1/chat/completions", kChat));
  EXPECT_THAT(client.read_answer(), EndsWith("\r\n\r\na"));
  EXPECT_EQ(client.read_to_end(), "");
  client.close();
  drained.get_future().wait();
  rig.stop();
}

TEST(Leaving, AServerWithRunningExchangesCanBeDestroyed) {
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    connection.send_chunk("data: one\n\n");
    connection.read_to_end();
  });
  ProxyRig rig;
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient stream(rig.port());
  stream.send(post("/v1/chat/completions", kStream));
  stream.read_until("one\n\n\r\n");
  RawClient half(rig.port());
  half.send("POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  RawClient idle(rig.port());
  rig.stop();
  EXPECT_EQ(rig.in_flight(index), 0);
  EXPECT_EQ(idle.read_to_end(), "");
}

// A data plane that has no replica and is started by the test.
struct BareServer {
  explicit BareServer(std::uint16_t port) {
    options.listen_address = "127.0.0.1";
    options.listen_port = port;
    std::vector<std::unique_ptr<Pipeline>> pipelines;
    PolicySpec spec;
    spec.preset = "random";
    pipelines.push_back(std::move(*make_registry().build(spec)));
    router = std::make_unique<SharedRouter>(Router::Options{}, std::move(pipelines));
    server = std::make_unique<ProxyServer>(options, ProxyDependencies{.fleet = fleet,
                                                                      .router = *router,
                                                                      .activity = activity,
                                                                      .resolver = resolver,
                                                                      .metrics = metrics,
                                                                      .access_log = nullptr,
                                                                      .decision_log = nullptr,
                                                                      .append_models = nullptr,
                                                                      .refresh_models = nullptr,
                                                                      .orca_report = nullptr});
  }

  ProxyOptions options;
  Fleet fleet{{{"general", PoolPurpose::kGeneral}}, HealthOptions{}, Reactor::steady_clock()};
  std::unique_ptr<SharedRouter> router;
  ReplicaActivity activity;
  Resolver resolver;
  ProxyMetrics metrics{1};
  std::unique_ptr<ProxyServer> server;
};

TEST(Listening, FailsWhereThePortIsTaken) {
  ProxyRig first;
  first.start();
  EXPECT_FALSE(BareServer(first.port()).server->bind().ok());
  first.stop();
}

// While the first probes run, the port is taken; whoever asks for it is not kept waiting.
TEST(Listening, BeforeTheStartThePortIsTakenAndRefuses) {
  BareServer first(0);
  ASSERT_TRUE(first.server->bind().ok());
  const std::uint16_t port = first.server->port();
  const auto connects = [port] {
    asio::io_context io;
    asio::ip::tcp::socket socket(io);
    std::error_code error;
    socket.connect({asio::ip::address_v4::loopback(), port}, error);
    return !error;
  };
  EXPECT_FALSE(connects());
  EXPECT_FALSE(BareServer(port).server->bind().ok());
  ASSERT_TRUE(first.server->start().ok());
  RawClient client(port);
  client.send(get("/healthz"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  // The server closes first: its connections in TIME_WAIT do not keep the port.
  first.server.reset();
  EXPECT_EQ(client.read_to_end(), "");
  BareServer second(port);
  EXPECT_TRUE(second.server->bind().ok());
  EXPECT_TRUE(second.server->start().ok());
  EXPECT_TRUE(connects());
}

// Two threads, two ports' worth of clients, replicas that come and go: nothing is lost.
TEST(Threads, ServeTogether) {
  std::atomic<int> served{0};
  const auto serve = [&](FakeConnection& connection) {
    while (!connection.read_request().empty()) {
      ++served;
      connection.send_json("{}");
    }
  };
  FakeReplica a(serve);
  FakeReplica b(serve);
  ProxyOptions options;
  options.threads = 2;
  ProxyRig rig(options, "least_work");
  const ReplicaIndex first = rig.add(a.port());
  const ReplicaIndex second = rig.add(b.port());
  rig.start();
  std::atomic<int> good{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      RawClient client(rig.port());
      for (int request = 0; request < 50; ++request) {
        client.send(post("/v1/chat/completions", kChat));
        if (client.read_answer().starts_with("HTTP/1.1 200")) ++good;
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    rig.fleet().probe_result(first, {ProbeResult::Kind::kRefused, ""});
    rig.fleet().probe_result(first, {ProbeResult::Kind::kRefused, ""});
    rig.fleet().probe_result(first, {ProbeResult::Kind::kReady, ""});
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(good, 400);
  EXPECT_GE(served, 400);
  EXPECT_TRUE(ProxyRig::eventually(
      [&] { return rig.in_flight(first) == 0 && rig.in_flight(second) == 0; }));
  rig.stop();
}

}  // namespace
}  // namespace pointsman::test
