// What one side sends to confuse the framing of the other, or to cost more than it should.

#include <memory>
#include <string>
#include <vector>

#include "support/plain_message.h"
#include "support/proxy_test.h"
#include "support/stepped_proxy.h"

namespace pointsman::test {
namespace {

constexpr std::string_view kSmallAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

class Attack : public ::testing::Test {
 protected:
  void SetUp() override { start({}); }
  void TearDown() override {
    for (StepSocket* const socket : {&client_, &replica_}) socket->reset();
    EXPECT_TRUE(proxy_->until([&] { return proxy_->connections() == 0; }));
    EXPECT_EQ(proxy_->in_flight(), 0);
    EXPECT_EQ(proxy_->held_bytes(), 0);
  }
  void start(ProxyOptions options) {
    client_.reset();
    proxy_ = std::make_unique<SteppedProxy>(std::move(options));
    proxy_->add(listener_.port());
    client_ = proxy_->client();
  }
  // The next request that the replica gets, taken from its connection.
  PlainMessage next_request() {
    if (replica_.over()) replica_ = StepSocket();
    EXPECT_TRUE(proxy_->asked(listener_, replica_));
    return take(replica_);
  }
  PlainMessage next_answer(bool to_head = false) {
    EXPECT_TRUE(proxy_->told(client_, to_head)) << client_.in();
    return take(client_, to_head);
  }
  static PlainMessage take(StepSocket& socket, bool to_head = false) {
    const std::optional<PlainMessage> message = read_message(socket.in(), to_head, socket.ended());
    if (!message) return {};
    socket.in().erase(0, message->size);
    return *message;
  }
  // Sends all of it, however often it takes a turn of the others.
  void send_all(StepSocket& socket, std::string_view bytes) {
    EXPECT_TRUE(proxy_->until([&] {
      bytes.remove_prefix(socket.send(bytes));
      return bytes.empty();
    }));
  }

  StepListener listener_;
  std::unique_ptr<SteppedProxy> proxy_;
  StepSocket client_;
  StepSocket replica_;
};

// --- framing ------------------------------------------------------------------------------------

// RFC 9112, 6.3: what has no body has none whatever its headers say. What follows belongs to nobody
// and the replica's connection is not used again.
TEST_F(Attack, ABodyBehindAnAnswerThatHasNoneIsNotReadAsTheNextAnswer) {
  const std::string evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
  const std::string length = "Content-Length: " + std::to_string(evil.size()) + "\r\n";
  struct Bodiless {
    std::string method;
    std::string head;
  };
  for (const auto& [method, head] :
       std::vector<Bodiless>{{"HEAD", "HTTP/1.1 200 OK\r\n" + length},
                             {"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"},
                             {"GET", "HTTP/1.1 204 No Content\r\n" + length},
                             {"GET", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n"},
                             {"GET", "HTTP/1.1 304 Not Modified\r\n" + length},
                             {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"}}) {
    client_.send(method +
                 " /v1/a HTTP/1.1\r\nHost: a\r\n\r\nGET /v1/b HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_THAT(next_request().start, StartsWith(method + " /v1/a"));
    replica_.send(head + "\r\n" + evil);
    const PlainMessage first = next_answer(method == "HEAD");
    EXPECT_EQ(first.start, head.substr(0, head.find("\r\n"))) << head;
    EXPECT_TRUE(proxy_->over(replica_)) << head;
    EXPECT_THAT(next_request().start, StartsWith("GET /v1/b"));
    replica_.send(kSmallAnswer);
    EXPECT_EQ(next_answer().body, "{}") << head;
  }
}

// RFC 9110, 8.6 and RFC 9112, 6.1.
TEST_F(Attack, ANoContentAnswerGoesOnWithoutFraming) {
  for (const char* line : {"Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"}) {
    client_.send("GET /v1/a HTTP/1.1\r\nHost: a\r\n\r\n");
    next_request();
    replica_.send("HTTP/1.1 204 No Content\r\nX-A: b\r\n" + std::string(line) + "\r\n");
    const PlainMessage answer = next_answer();
    EXPECT_EQ(answer.header("content-length"), "");
    EXPECT_EQ(answer.header("transfer-encoding"), "");
    EXPECT_EQ(answer.header("x-a"), "b");
  }
}

TEST_F(Attack, BytesBehindAnAnswerNeverReachTheNextClient) {
  client_.send(get("/v1/a"));
  next_request();
  replica_.send(std::string(kSmallAnswer) + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
  EXPECT_EQ(next_answer().body, "{}");
  EXPECT_TRUE(proxy_->over(replica_));
  // Nor where they come a little later.
  client_.send(get("/v1/b"));
  next_request();
  replica_.send(kSmallAnswer);
  EXPECT_EQ(next_answer().body, "{}");
  replica_.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
  EXPECT_TRUE(proxy_->over(replica_));
  client_.send(get("/v1/c"));
  EXPECT_THAT(next_request().start, StartsWith("GET /v1/c"));
  replica_.send(kSmallAnswer);
  EXPECT_EQ(next_answer().body, "{}");
}

// RFC 9112, 3.2.2: the target's authority counts, and none of both steers where it goes.
TEST_F(Attack, HostAndTargetDoNotSteerTheRequest) {
  client_.send("GET http://other.test/v1/a?b HTTP/1.1\r\nHost: third.test\r\n\r\n");
  const PlainMessage request = next_request();
  EXPECT_EQ(request.start, "GET /v1/a?b HTTP/1.1");
  EXPECT_EQ(request.header("host"), "127.0.0.1:" + std::to_string(listener_.port()));
  replica_.send(kSmallAnswer);
  EXPECT_EQ(next_answer().body, "{}");
}

TEST_F(Attack, AChunkOfAnyAnnouncedSizeCostsOnlyWhatComes) {
  client_.send(
      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "7fffffffffffffff\r\n" +
      std::string(30'000, 'x'));
  proxy_->turn(8);
  EXPECT_LT(proxy_->held_bytes(), 1'000'000);
  EXPECT_EQ(proxy_->in_flight(), 0);
  proxy_->advance(std::chrono::minutes(2));
  EXPECT_EQ(next_answer().status(), 408);
}

TEST_F(Attack, TinyChunksWithLongExtensionsAreBoundedToo) {
  ProxyOptions options;
  options.limits.max_body = 100'000;
  start(options);
  client_.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "1;" + std::string(1000, 'e') + "\r\n \r\n";
  for (int i = 0; i < 2'000; ++i) {
    send_all(client_, chunk);
    proxy_->turn();
    if (!replica_.open()) replica_ = listener_.accept();
    replica_.receive();
    ASSERT_LE(proxy_->held_bytes(), 600'000);
  }
  EXPECT_TRUE(replica_.open()) << "it streams through";
}

// --- switching protocols ------------------------------------------------------------------------

const std::string kUpgrade =
    "GET /v1/realtime HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";

// A tunnel that the replica does not know of would carry requests past the router.
TEST_F(Attack, ARefusedUpgradeIsNoTunnel) {
  client_.send(kUpgrade + "\r\n" + get("/metrics") + get("/v1/b"));
  EXPECT_EQ(next_request().header("upgrade"), "websocket");
  replica_.send("HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(next_answer().status(), 426);
  EXPECT_EQ(next_answer().status(), 404);
  EXPECT_THAT(next_request().start, StartsWith("GET /v1/b"));
  replica_.send(kSmallAnswer);
  EXPECT_EQ(next_answer().status(), 200);
}

// RFC 9110, 7.8: only what was asked for.
TEST_F(Attack, ASwitchThatNobodyAskedForIsABadAnswer) {
  const std::string switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n";
  struct Switch {
    std::string request;
    std::string answer;
  };
  for (const auto& [request, answer] : std::vector<Switch>{
           {get("/v1/a"), switching + "Upgrade: websocket\r\n"},
           {get("/v1/a", "Connection: Upgrade\r\nUpgrade: h2c\r\n"),
            switching + "Upgrade: h2c\r\n"},
           {get("/v1/a", "Upgrade: websocket\r\n"), switching + "Upgrade: websocket\r\n"},
           {kUpgrade + "\r\n", switching + "Upgrade: h2c\r\n"},
           {kUpgrade + "\r\n", switching},
           {kUpgrade + "\r\n", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"},
           {kUpgrade + "\r\n",
            "HTTP/1.0 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"}}) {
    client_.send(request);
    next_request();
    replica_.send(answer + "\r\nnot http");
    EXPECT_EQ(next_answer().status(), 502) << request << answer;
    EXPECT_TRUE(proxy_->over(replica_));
  }
}

TEST_F(Attack, NothingSwitchesInTheMiddleOfARequest) {
  ProxyOptions options;
  options.limits.max_body = 100'000;
  start(options);
  client_.send(kUpgrade + "Content-Length: 200000\r\n\r\n" + std::string(40'000, 'x'));
  EXPECT_TRUE(proxy_->until([&] {
    if (!replica_.open()) replica_ = listener_.accept();
    replica_.receive();
    return replica_.in().size() > 40'000;
  }));
  replica_.send(
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
  EXPECT_EQ(next_answer().status(), 502);
  EXPECT_TRUE(proxy_->over(client_));
}

// --- numbers
// --------------------------------------------------------------------------------------

TEST_F(Attack, ThousandsOfHeadersAreRefusedBothWays) {
  std::string headers;
  for (int i = 0; i < 5'000; ++i) headers += "A: b\r\n";
  client_.send(get("/v1/a", headers));
  EXPECT_EQ(next_answer().status(), 431);
  EXPECT_TRUE(proxy_->over(client_));
  client_ = proxy_->client();
  client_.send(get("/v1/a"));
  next_request();
  send_all(replica_, "HTTP/1.1 200 OK\r\n" + headers + "\r\n");
  const PlainMessage answer = next_answer();
  EXPECT_EQ(answer.status(), 502);
  EXPECT_THAT(answer.body, HasSubstr("too many headers"));
}

// A client that asks on and on and reads nothing is held at what the sockets take.
TEST_F(Attack, PipelinedRequestsWaitForTheirAnswersToBeTaken) {
  ProxyOptions options;
  options.limits.requests_per_connection = 0;
  start(options);
  const std::string pair = get("/healthz") + get("/nothing");
  std::size_t sent = 0;
  int idle = 0;
  while (idle < 50) {
    const std::size_t taken = client_.send(std::string_view(pair).substr(sent % pair.size()));
    sent += taken;
    idle = taken == 0 ? idle + 1 : 0;
    proxy_->turn();
    ASSERT_LT(sent, 100'000'000);
  }
  // It goes on, in order, once the client reads.
  int answers = 0;
  EXPECT_TRUE(proxy_->until([&] {
    client_.receive(16 * 1024);
    while (read_message(client_.in())) {
      EXPECT_EQ(take(client_).status(), answers++ % 2 == 0 ? 200 : 404);
    }
    return answers >= 1'000;
  })) << answers;
}

// Behind a body too large for the input, a further request is not kept: the close is announced.
TEST_F(Attack, ARequestBehindALargeBodyIsAnsweredOrRefusedByAClose) {
  for (const std::size_t size : {100, 15'000, 17'000, 300'000}) {
    client_ = proxy_->client();
    const std::string body(size, ' ');
    send_all(client_, post("/v1/completions", body) + get("/healthz"));
    EXPECT_EQ(next_request().body, body);
    replica_.send(kSmallAnswer);
    const PlainMessage first = next_answer();
    EXPECT_EQ(first.body, "{}");
    if (first.header("connection") == "close") {
      EXPECT_TRUE(proxy_->over(client_));
      EXPECT_EQ(client_.in(), "");
    } else {
      EXPECT_EQ(next_answer().status(), 200);
    }
  }
}

TEST_F(Attack, InterimAnswersWithoutEndEndByTheLimitOfTheFirstByte) {
  for (const char* status : {"100 Continue", "103 Early Hints"}) {
    client_ = proxy_->client();
    client_.send(post("/v1/completions", "{}"));
    next_request();
    for (int i = 0; i < 70 && !replica_.over(); ++i) {
      replica_.send("HTTP/1.1 " + std::string(status) + "\r\nX-A: b\r\n\r\n");
      proxy_->turn(4);
      proxy_->advance(std::chrono::minutes(1));
      replica_.receive();
      client_.receive();
    }
    EXPECT_TRUE(replica_.over());
    EXPECT_THAT(client_.in(), HasSubstr("HTTP/1.1 504"));
  }
}

// Nobody reads them: they are not piled up.
TEST_F(Attack, InterimAnswersThatNobodyTakesStopTheReplica) {
  client_.send(post("/v1/completions", "{}"));
  next_request();
  std::string many;
  while (many.size() < 60'000) many += "HTTP/1.1 103 Early Hints\r\nX-A: b\r\n\r\n";
  std::size_t sent = 0;
  int idle = 0;
  while (idle < 50) {
    const std::size_t taken = replica_.send(std::string_view(many).substr(sent % many.size()));
    sent += taken;
    idle = taken == 0 ? idle + 1 : 0;
    proxy_->turn();
    ASSERT_LT(sent, 100'000'000) << "it is stopped";
  }
}

// --- large bodies
// ---------------------------------------------------------------------------------

TEST_F(Attack, FiftyMegabytesPassBothWaysInLittleMemory) {
  constexpr std::size_t kSize = 50'000'000;
  client_.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " +
               std::to_string(kSize) + "\r\n\r\n");
  std::string piece(100'000, 'x');
  for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = static_cast<char>('a' + i % 23);
  const std::string twice = piece + piece;
  const auto matches = [&](std::string_view bytes, std::size_t from) {
    for (std::size_t at = 0; at < bytes.size(); at += piece.size()) {
      const std::string_view run = bytes.substr(at, piece.size());
      if (run != std::string_view(twice).substr((from + at) % piece.size(), run.size()))
        return false;
    }
    return true;
  };
  std::size_t sent = 0;
  std::size_t got = 0;
  std::string head;
  bool same = true;
  EXPECT_TRUE(proxy_->until([&] {
    if (sent < kSize) sent += client_.send(std::string_view(piece).substr(sent % piece.size()));
    if (!replica_.open()) replica_ = listener_.accept();
    replica_.receive();
    std::string& in = replica_.in();
    if (head.empty() && in.find("\r\n\r\n") != std::string::npos) {
      head = in.substr(0, in.find("\r\n\r\n") + 4);
      in.erase(0, head.size());
    }
    if (head.empty()) return false;
    same = same && matches(in, got);
    got += in.size();
    in.clear();
    EXPECT_LT(proxy_->held_bytes(), 20'000'000);
    return got == kSize;
  }));
  EXPECT_TRUE(same);
  EXPECT_EQ(proxy_->metrics().bodies_not_held.value(), 1);
  EXPECT_EQ(proxy_->held_bytes(), 0) << "what was held has been sent";

  replica_.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kSize) + "\r\n\r\n");
  sent = got = 0;
  head.clear();
  EXPECT_TRUE(proxy_->until([&] {
    if (sent < kSize) sent += replica_.send(std::string_view(piece).substr(sent % piece.size()));
    client_.receive();
    std::string& in = client_.in();
    if (head.empty() && in.find("\r\n\r\n") != std::string::npos) {
      head = in.substr(0, in.find("\r\n\r\n") + 4);
      in.erase(0, head.size());
    }
    if (head.empty()) return false;
    same = same && matches(in, got);
    got += in.size();
    in.clear();
    return got == kSize;
  }));
  EXPECT_TRUE(same);
}

// --- Expect
// ---------------------------------------------------------------------------------------

TEST_F(Attack, ExpectationsAreMetOnceAndOnlyWhereSomebodyWaits) {
  const auto expecting = [](std::string_view version, std::string_view body) {
    return "POST /v1/completions HTTP/" + std::string(version) +
           "\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n" + std::string(body);
  };
  client_.send(expecting("1.1", ""));
  EXPECT_EQ(next_answer().status(), 100);
  client_.send("{}");
  EXPECT_EQ(next_request().header("expect"), "");
  replica_.send("HTTP/1.1 100 Continue\r\n\r\n" + std::string(kSmallAnswer));
  EXPECT_EQ(next_answer().status(), 200);
  // The body is here already, and HTTP/1.0 knows no 100.
  client_.send(expecting("1.1", "{}"));
  next_request();
  replica_.send(kSmallAnswer);
  EXPECT_EQ(next_answer().status(), 200);
  client_.send(expecting("1.0", ""));
  proxy_->turn(4);
  client_.send("{}");
  next_request();
  replica_.send(kSmallAnswer);
  EXPECT_EQ(next_answer().status(), 200);
}

}  // namespace
}  // namespace pointsman::test
