// Who may ask: keys and their limits, headers that steer, and limits on connections.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/proxy_test.h"

namespace pointsman::test {
namespace {

constexpr char kAlice[] = "Authorization: Bearer alices-key\r\n";
constexpr char kBob[] = "Authorization: Bearer bobs-key\r\n";

ProxyOptions threads(std::size_t count) {
  ProxyOptions options;
  options.threads = count;
  return options;
}

class Access : public ::testing::Test {
 protected:
  void SetUp() override {
    write_keys(key_line("alice", hash_of_key("alices-key"), 2) + "\n" +
               key_line("bob", hash_of_key("bobs-key"), 0) + "\n");
    ASSERT_TRUE(table_.load().ok());
    rig_.keys = &table_;
    first_ = rig_.add(replica_.port());
  }
  void TearDown() override {
    open_gate();
    rig_.stop();
    for (const auto& use : table_.keys()->uses()) EXPECT_EQ(use->running(), 0U) << use->name();
    std::filesystem::remove(file_);
  }

  void write_keys(const std::string& text) const {
    std::ofstream(file_ + ".new") << text;
    std::filesystem::rename(file_ + ".new", file_);
  }
  [[nodiscard]] std::uint32_t running(std::size_t name = 0) const {
    return table_.keys()->uses()[name]->running();
  }
  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  void open_gate() {
    {
      const std::lock_guard lock(mutex_);
      gate_open_ = true;
    }
    opened_.notify_all();
  }
  // A client with a stream of alice's that has begun and waits for the gate.
  std::unique_ptr<RawClient> streaming() {
    auto client = std::make_unique<RawClient>(rig_.port());
    client->send(post("/v1/chat/completions", kStream, kAlice));
    EXPECT_THAT(client->read_until(kToken), StartsWith("HTTP/1.1 200"));
    return client;
  }
  std::string ask(std::string_view request) {
    RawClient client(rig_.port());
    client.send(request);
    return client.read_answer();
  }
  std::string chat(std::string_view headers) {
    return ask(post("/v1/chat/completions", kChat, headers));
  }

  // Plain requests are answered at once; of a stream there is one event, then it waits for the
  // gate. /v1/cut and /v1/tunnel end in their own ways.
  void serve(FakeConnection& connection) {
    for (std::string request = connection.read_request(); !request.empty();
         request = connection.read_request()) {
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      if (request.starts_with("GET /v1/tunnel")) {
        connection.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
            "websocket\r\n\r\n");
        connection.read_to_end();
        return;
      }
      if (request.starts_with("POST /v1/cut")) {
        connection.begin_stream();
        connection.send_chunk(kToken);
        return;
      }
      if (request.find("\"stream\"") == std::string::npos) {
        connection.send_json(R"({"ok":true})");
        continue;
      }
      connection.begin_stream();
      connection.send_chunk(kToken);
      {
        std::unique_lock lock(mutex_);
        opened_.wait(lock, [this] { return gate_open_; });
      }
      connection.end_stream();
    }
  }

  const std::string file_ = ::testing::TempDir() + "access_test." +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name();
  KeyTable table_{file_, 0};
  std::mutex mutex_;
  std::condition_variable opened_;
  bool gate_open_ = false;
  std::vector<std::string> requests_;
  FakeReplica replica_{[this](FakeConnection& connection) { serve(connection); }};
  ProxyRig rig_{threads(2)};
  ReplicaIndex first_ = 0;
};

// --- keys ----------------------------------------------------------------------------------------

TEST_F(Access, WithoutAKeyIsRefusedInOpenAisForm) {
  rig_.start();
  for (const std::string& request :
       {post("/v1/chat/completions", kChat), get("/v1/models"), get("/nothing"),
        post("/v1/chat/completions", kChat, "Authorization: Basic YTpi\r\n"),
        post("/v1/chat/completions", kChat, "Authorization: alices-key\r\n")}) {
    const std::string answer = ask(request);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 Unauthorized\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\nWWW-Authenticate: Bearer\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\nX-Pointsman-Error: no_key\r\n"));
    EXPECT_THAT(answer, HasSubstr(R"("type":"invalid_request_error")"));
    EXPECT_THAT(answer, HasSubstr(R"("code":"invalid_api_key")"));
  }
  EXPECT_THAT(requests(), SizeIs(0));
  EXPECT_EQ(rig_.own_errors("no_key"), 5U);
}

TEST_F(Access, AWrongKeyIsRefusedAndNotRepeated) {
  rig_.start();
  for (const char* headers :
       {"Authorization: Bearer mallorys-key\r\n", "x-api-key: mallorys-key\r\n",
        "Authorization: Bearer alices-keY\r\n"}) {
    const std::string answer = chat(headers);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 401"));
    EXPECT_THAT(answer, HasSubstr("X-Pointsman-Error: wrong_key"));
    EXPECT_THAT(answer, Not(HasSubstr("mallory")));
  }
  EXPECT_EQ(rig_.own_errors("wrong_key"), 3U);
  EXPECT_THAT(requests(), SizeIs(0));
}

TEST_F(Access, KeysOfEitherKindLetIn) {
  rig_.start();
  for (const char* headers :
       {kAlice, kBob, "authorization: bearer alices-key\r\n", "X-Api-Key: alices-key\r\n",
        "Authorization: Bearer sk-of-another\r\nx-api-key: bobs-key\r\n"}) {
    EXPECT_THAT(chat(headers), StartsWith("HTTP/1.1 200")) << headers;
  }
  EXPECT_EQ(table_.keys()->uses()[0]->requests(), 3U);
  EXPECT_EQ(table_.keys()->uses()[1]->requests(), 2U);
}

TEST_F(Access, TheBodyOfARefusedRequestIsNotWaitedFor) {
  rig_.start();
  const std::string answer =
      ask("POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n"
          "Expect: 100-continue\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(answer, HasSubstr("Connection: close"));
}

TEST_F(Access, HealthAsksForNoKey) {
  rig_.start();
  EXPECT_THAT(ask(get("/health")), StartsWith("HTTP/1.1 200"));
}

// A browser's question before a request of another origin carries no key.
TEST_F(Access, APreflightAsksForNoKey) {
  rig_.start();
  const std::string line = "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: h\r\n";
  const std::string cors = "Origin: http://a\r\nAccess-Control-Request-Method: POST\r\n";
  EXPECT_THAT(ask(line + cors + "\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(line + "\r\n"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(ask(line + "Origin: http://a\r\n\r\n"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(ask(line + cors + "Content-Length: 2\r\n\r\n{}"), StartsWith("HTTP/1.1 401"));
}

TEST_F(Access, TheClientsKeyEndsHere) {
  rig_.start();
  EXPECT_THAT(chat(std::string(kAlice) + "X-Api-Key: alices-key\r\nX-Other: stays\r\n"),
              StartsWith("HTTP/1.1 200"));
  const std::string request = requests().at(0);
  EXPECT_THAT(request, Not(HasSubstr("alices-key")));
  EXPECT_THAT(request, Not(HasSubstr("uthorization")));
  EXPECT_THAT(request, Not(HasSubstr("X-Api-Key")));
  EXPECT_THAT(request, HasSubstr("X-Other: stays\r\n"));
}

TEST_F(Access, TheClientsKeyGoesOnWhereThatIsConfigured) {
  rig_.options().pass_keys = true;
  rig_.start();
  EXPECT_THAT(chat("x-api-key: alices-key\r\nAuthorization: Bearer of-the-engine\r\n"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(requests().at(0),
              HasSubstr("x-api-key: alices-key\r\nAuthorization: Bearer of-the-engine\r\n"));
}

TEST_F(Access, TheReplicasKeyTakesThePlaceOfTheClients) {
  ReplicaSpec spec = *rig_.fleet().spec(first_);
  ASSERT_TRUE(rig_.fleet().remove(spec.url).ok());
  spec.api_key = "engines-key";
  spec.api_key_upstream = true;
  const Result<ReplicaIndex> added = rig_.fleet().add(spec);
  ASSERT_TRUE(added.ok());
  rig_.fleet().probe_result(*added, {ProbeResult::Kind::kReady, ""});
  rig_.start();
  EXPECT_THAT(chat(kAlice), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(requests().at(0), HasSubstr("Authorization: Bearer engines-key\r\n"));
  EXPECT_THAT(requests().at(0), Not(HasSubstr("alices-key")));
}

TEST_F(Access, WithoutAKeyFileKeysPassAsTheyCame) {
  rig_.keys = nullptr;
  rig_.start();
  EXPECT_THAT(chat("X-API-Key:  k \r\nAuthorization: Bearer b\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(requests().at(0), HasSubstr("X-API-Key:  k \r\nAuthorization: Bearer b\r\n"));
}

TEST_F(Access, NewKeysCountForOpenConnectionsToo) {
  rig_.start();
  RawClient client(rig_.port());
  client.send(post("/v1/chat/completions", kChat, kAlice));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  write_keys(key_line("carol", hash_of_key("carols-key"), 0) + "\n");
  table_.reload();
  client.send(post("/v1/chat/completions", kChat, kAlice));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 401"));
  client.send(post("/v1/chat/completions", kChat, "x-api-key: carols-key\r\n"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
}

// --- limits on keys ------------------------------------------------------------------------------

TEST_F(Access, OneRequestMoreThanTheLimitIsRefused) {
  rig_.start();
  const auto one = streaming();
  const auto two = streaming();
  const std::string answer = chat(kAlice);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 429"));
  EXPECT_THAT(answer, HasSubstr("\r\nRetry-After: 1\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nX-Pointsman-Error: key_limit\r\n"));
  EXPECT_THAT(answer, HasSubstr(R"("type":"rate_limit_error")"));
  EXPECT_THAT(answer, HasSubstr(R"("code":"rate_limit_exceeded")"));
  EXPECT_THAT(chat(kBob), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(table_.keys()->uses()[0]->refused(), 1U);
  EXPECT_EQ(rig_.own_errors("key_limit"), 1U);
  open_gate();
  one->read_until("0\r\n\r\n");
  two->read_until("0\r\n\r\n");
  EXPECT_THAT(chat(kAlice), StartsWith("HTTP/1.1 200"));
}

TEST_F(Access, AClientThatLeavesGivesItsPlaceBack) {
  rig_.start();
  {
    const auto one = streaming();
    const auto two = streaming();
    EXPECT_EQ(running(), 2U);
  }
  EXPECT_TRUE(ProxyRig::eventually([&] { return running() == 0; }));
}

TEST_F(Access, EveryOtherEndGivesThePlaceBack) {
  rig_.start();
  {
    RawClient cut(rig_.port());
    cut.send(post("/v1/cut", kStream, kAlice));
    cut.read_to_end();
    EXPECT_TRUE(ProxyRig::eventually([&] { return running() == 0; }));
  }
  {
    RawClient tunnel(rig_.port());
    tunnel.send(
        get("/v1/tunnel", std::string(kAlice) + "Connection: Upgrade\r\nUpgrade: websocket\r\n"));
    EXPECT_THAT(tunnel.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 101"));
    EXPECT_EQ(running(), 1U);
  }
  EXPECT_TRUE(ProxyRig::eventually([&] { return running() == 0; }));
  EXPECT_THAT(chat(std::string(kAlice) + "Transfer-Encoding: x\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(get("/nothing", kAlice)), StartsWith("HTTP/1.1 404"));
  EXPECT_EQ(running(), 0U);
}

// One request is one place, however many replicas it is tried on.
TEST_F(Access, ARetryTakesNoSecondPlace) {
  std::atomic<std::uint32_t> seen{0};
  FakeReplica unwilling([&](FakeConnection& connection) {
    while (!connection.read_request().empty()) {
      seen = running();
      connection.send_json("{}", 503);
    }
  });
  rig_.add(unwilling.port());
  rig_.start();
  for (int i = 0; i < 4; ++i) EXPECT_THAT(chat(kAlice), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(seen, 1U);
  EXPECT_EQ(running(), 0U);
  rig_.stop();
}

TEST_F(Access, AShutdownGivesPlacesBack) {
  rig_.start();
  const auto one = streaming();
  EXPECT_EQ(running(), 1U);
  rig_.server().cut();
  EXPECT_TRUE(ProxyRig::eventually([&] { return running() == 0; }));
}

// Whoever has its answer to the last byte may ask again at once, on a connection of another thread.
TEST_F(Access, AnAnswersEndIsItsPlacesEnd) {
  write_keys(key_line("alice", hash_of_key("alices-key"), 1) + "\n");
  table_.reload();
  rig_.start();
  std::deque<RawClient> clients;
  for (int i = 0; i < 8; ++i) clients.emplace_back(rig_.port());
  for (int i = 0; i < 400; ++i) {
    RawClient& client = clients[static_cast<std::size_t>(i) % clients.size()];
    client.send(post("/v1/chat/completions", kChat, kAlice));
    ASSERT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200")) << i;
  }
}

TEST_F(Access, ThreadsTogetherKeepTheLimit) {
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  FakeReplica counting([&](FakeConnection& connection) {
    while (!connection.read_request().empty()) {
      const int now = ++inside;
      int before = most;
      while (now > before && !most.compare_exchange_weak(before, now)) {
      }
      --inside;
      connection.send_json("{}");
    }
  });
  ProxyRig rig(threads(3));
  rig.keys = &table_;
  rig.add(counting.port());
  rig.start();
  std::atomic<int> served{0};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      RawClient client(rig.port());
      for (int turn = 0; turn < 100; ++turn) {
        client.send(post("/v1/chat/completions", kChat, kAlice));
        const std::string answer = client.read_answer();
        ++(answer.starts_with("HTTP/1.1 200") ? served : refused);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 2);
  EXPECT_EQ(served + refused, 600);
  EXPECT_EQ(table_.keys()->uses()[0]->requests(), static_cast<std::uint64_t>(served.load()));
  EXPECT_EQ(table_.keys()->uses()[0]->refused(), static_cast<std::uint64_t>(refused.load()));
  rig.stop();
  EXPECT_EQ(running(), 0U);
}

// --- headers that steer
// ----------------------------------------------------------------------------

constexpr char kSteering[] =
    "X-A: 1\r\nX-Pointsman-Replica: r\r\nx-gateway-destination-endpoint: 10.0.0.1:80\r\nX-B:  2 "
    "\r\n"
    "X-Prefiller-Host-Port: evil:1\r\n";

TEST_F(Access, HeadersThatSteerAreRemovedAndNoByteElse) {
  rig_.start();
  EXPECT_THAT(chat(std::string(kBob) + kSteering), StartsWith("HTTP/1.1 200"));
  const std::string request = requests().at(0);
  EXPECT_THAT(request, HasSubstr("\r\nX-A: 1\r\nX-B:  2 \r\n"));
  EXPECT_THAT(request, Not(HasSubstr("ointsman-")));
  EXPECT_THAT(request, Not(HasSubstr("destination")));
  EXPECT_THAT(request, Not(HasSubstr("evil")));
  EXPECT_EQ(rig_.sum([](auto& shard) { return shard.steering_removed.value(); }), 1U);
  EXPECT_THAT(chat(std::string(kBob) + "X-A: 1\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(rig_.sum([](auto& shard) { return shard.steering_removed.value(); }), 1U);
}

TEST_F(Access, HeadersThatSteerPassFromTrustedClients) {
  rig_.options().trusted = {"10.0.0.0/8", "127.0.0.0/8"};
  rig_.start();
  EXPECT_THAT(chat(std::string(kBob) + kSteering), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(requests().at(0), HasSubstr(kSteering));
}

// Removed before they act: a session named by such a header is none.
TEST_F(Access, HeadersThatSteerNameNoSession) {
  for (const bool trusted : {false, true}) {
    rig_.stop();
    ProxyOptions options;
    options.session_headers = {"x-pointsman-session"};
    if (trusted) options.trusted = {"127.0.0.1"};
    ProxyRig rig(options, "session_affinity");
    FakeReplica others[3] = {FakeReplica([this](FakeConnection& c) { serve(c); }),
                             FakeReplica([this](FakeConnection& c) { serve(c); }),
                             FakeReplica([this](FakeConnection& c) { serve(c); })};
    std::vector<ReplicaIndex> replicas;
    for (FakeReplica& one : others) replicas.push_back(rig.add(one.port()));
    rig.start();
    std::vector<std::string> asked;
    for (int i = 0; i < 12; ++i) {
      RawClient client(rig.port());
      const std::string body = R"({"model":"m1","messages":[{"role":"user","content":"question )" +
                               std::to_string(i) + R"("}]})";
      client.send(post("/v1/chat/completions", body, "X-Pointsman-Session: same\r\n"));
      EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
      const std::string request = requests().back();
      asked.push_back(request.substr(request.find("Host: "), 30));
    }
    std::sort(asked.begin(), asked.end());
    const auto different = std::unique(asked.begin(), asked.end()) - asked.begin();
    EXPECT_EQ(different == 1, trusted) << different;
    rig.stop();
  }
}

// --- limits on connections
// -------------------------------------------------------------------------

TEST_F(Access, AConnectionTooManyIsToldSo) {
  rig_.options().limits.connections = 2;
  rig_.start();
  RawClient one(rig_.port());
  one.send(get("/health"));
  EXPECT_THAT(one.read_answer(), StartsWith("HTTP/1.1 200"));
  {
    RawClient two(rig_.port());
    two.send(get("/health"));
    EXPECT_THAT(two.read_answer(), StartsWith("HTTP/1.1 200"));
    RawClient three(rig_.port());
    three.send(get("/health"));
    const std::string answer = three.read_to_end();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 503"));
    EXPECT_THAT(answer, HasSubstr("X-Pointsman-Error: too_many_connections\r\n"));
    EXPECT_THAT(answer, HasSubstr("Retry-After: 1\r\n"));
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
    one.send(get("/health"));
    EXPECT_THAT(one.read_answer(), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_EQ(rig_.own_errors("too_many_connections"), 1U);
  EXPECT_TRUE(ProxyRig::eventually([&] {
    RawClient again(rig_.port());
    again.send(get("/health"));
    return again.read_answer().starts_with("HTTP/1.1 200");
  }));
}

TEST_F(Access, MoreThanAFewRefusedConnectionsAreClosedEarlier) {
  rig_.options().limits.connections = 1;
  rig_.start();
  RawClient one(rig_.port());
  one.send(get("/health"));
  EXPECT_THAT(one.read_answer(), StartsWith("HTTP/1.1 200"));
  std::deque<RawClient> refused;
  for (int i = 0; i < 200; ++i) refused.emplace_back(rig_.port());
  for (RawClient& client : refused) {
    EXPECT_THAT(client.read_to_end(), StartsWith("HTTP/1.1 503"));
  }
  EXPECT_EQ(rig_.own_errors("too_many_connections"), 200U);
}

TEST_F(Access, AClientHasAsManyConnectionsAsItMay) {
  rig_.options().limits.connections_per_client = 1;
  rig_.start();
  RawClient one(rig_.port());
  one.send(get("/health"));
  EXPECT_THAT(one.read_answer(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(RawClient(rig_.port()).read_to_end(),
              HasSubstr("X-Pointsman-Error: too_many_connections_of_client\r\n"));
  rig_.stop();
  rig_.options().trusted = {"127.0.0.1"};
  rig_.start();
  RawClient two(rig_.port());
  RawClient three(rig_.port());
  for (RawClient* client : {&two, &three}) {
    client->send(get("/health"));
    EXPECT_THAT(client->read_answer(), StartsWith("HTTP/1.1 200"));
  }
}

TEST_F(Access, TheLastRequestOfAConnectionIsAnsweredAndToldSo) {
  rig_.options().limits.requests_per_connection = 3;
  rig_.start();
  RawClient client(rig_.port());
  for (int i = 1; i <= 3; ++i) {
    client.send(post("/v1/chat/completions", kChat, kBob));
    const std::string answer = client.read_answer();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
    EXPECT_EQ(answer.find("Connection: close") != std::string::npos, i == 3) << i;
  }
  EXPECT_EQ(client.read_to_end(), "");
  EXPECT_EQ(rig_.sum([](auto& shard) { return shard.connections_used_up.value(); }), 1U);
}

}  // namespace
}  // namespace pointsman::test
