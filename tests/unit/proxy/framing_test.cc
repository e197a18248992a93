// Where messages end, on the wire: cases D01 to D09 and their neighbours.

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "support/proxy_test.h"
#include "support/test_data.h"

namespace pointsman::test {
namespace {

class Framing : public ::testing::Test {
 protected:
  void SetUp() override {
    rig_.add(replica_.port());
    rig_.start();
  }
  void TearDown() override { rig_.stop(); }
  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  std::mutex mutex_;
  std::vector<std::string> requests_;
  FakeReplica replica_{[this](FakeConnection& connection) {
    for (std::string request = connection.read_request(); !request.empty();
         request = connection.read_request()) {
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      connection.send_json(R"({"ok":true})");
    }
  }};
  ProxyRig rig_;
};

TEST_F(Framing, AmbiguousRequestsAreRefusedAndTheConnectionCloses) {
  for (const char* name : {"framing/cl-and-te.http", "framing/two-lengths.http",
                           "framing/empty-length.http", "framing/chunk-size-with-letters.http"}) {
    RawClient client(rig_.port());
    client.send(test_data(name));
    const std::string answer = client.read_to_end();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400")) << name;
    EXPECT_THAT(answer, HasSubstr("Connection: close")) << name;
    EXPECT_THAT(answer, HasSubstr(R"({"error":)")) << name;
    EXPECT_THAT(answer.substr(12), Not(HasSubstr("HTTP/1.1"))) << name;
  }
  EXPECT_THAT(requests(), SizeIs(0));
}

// Case D05.
TEST_F(Framing, WhatConnectionNamesStaysOnThisHop) {
  RawClient client(rig_.port());
  client.send(test_data("framing/connection-named-header.http"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  const std::string request = requests().at(0);
  EXPECT_THAT(request, HasSubstr("X-End-To-End: 2\r\n"));
  EXPECT_THAT(request, Not(HasSubstr("X-Only-This-Hop")));
  EXPECT_THAT(request, Not(HasSubstr("Connection:")));
}

// Case D06.
TEST_F(Framing, TheBodyOfARefusedRequestIsNeverTakenForARequest) {
  RawClient client(rig_.port());
  std::string bytes = test_data("framing/refused-with-body-then-good.http");
  bytes.replace(bytes.find("/v1/no-such-endpoint"), 20, "/no-such-endpoint");
  client.send(bytes);
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
}

TEST_F(Framing, ARefusedRequestWhoseBodyIsNotHereYetClosesTheConnection) {
  RawClient client(rig_.port());
  client.send("POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 28\r\n\r\n");
  const std::string first = client.read_answer();
  EXPECT_THAT(first, StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(first, HasSubstr("Connection: close"));
  client.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.read_to_end(), "");
}

TEST_F(Framing, PipelinedRequestsAreAnsweredInOrder) {
  RawClient client(rig_.port());
  std::string many;
  for (int i = 0; i < 30; ++i) {
    many += i % 3 == 0   ? get("/healthz")
            : i % 3 == 1 ? post("/v1/chat/completions", R"({"model":"m"})")
                         : get("/nothing");
  }
  client.send(many);
  for (int i = 0; i < 30; ++i) {
    const std::string answer = client.read_answer();
    EXPECT_THAT(answer, StartsWith(i % 3 == 2 ? "HTTP/1.1 404" : "HTTP/1.1 200")) << i;
  }
}

TEST_F(Framing, AsteriskIsNothingThatIsServed) {
  RawClient client(rig_.port());
  client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string answer = client.read_answer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(answer, HasSubstr("X-Pointsman-Error: not_found"));
}

TEST_F(Framing, AHeadMayComeByteByByte) {
  RawClient client(rig_.port());
  for (const char byte : post("/v1/chat/completions", R"({"model":"m"})")) {
    client.send({&byte, 1});
  }
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
}

// Case D09.
TEST_F(Framing, LargeBodiesAndHeadersPassAtDefaultSettings) {
  RawClient client(rig_.port());
  for (const std::size_t size : {200'000, 1'100'000, 9'000'000}) {
    const std::string body = R"({"model":"m","prompt":")" + std::string(size, 'p') + R"("})";
    client.send(post("/v1/completions", body));
    EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200")) << size;
    EXPECT_THAT(requests().back(), EndsWith(body.substr(body.size() - 100)));
    EXPECT_GT(requests().back().size(), size);
  }
  client.send(get("/v1/x", "X-Long: " + std::string(10'000, 'h') + "\r\n"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(requests().back(), HasSubstr(std::string(10'000, 'h')));
}

TEST_F(Framing, AHeadOverTheLimitIsRefusedWith431) {
  RawClient client(rig_.port());
  client.send(get("/v1/x", "X-Long: " + std::string(70'000, 'h') + "\r\n"));
  const std::string answer = client.read_to_end();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(answer, HasSubstr("X-Pointsman-Error: head_too_large"));
  EXPECT_THAT(answer, HasSubstr("limits.head is 65536 bytes, limits.headers 256"));
  EXPECT_EQ(rig_.own_errors("head_too_large"), 1);
}

TEST_F(Framing, TheLimitsOfAHeadAreThoseOfTheConfiguration) {
  rig_.stop();
  rig_.options().limits.head = {.max_size = 50'000, .max_headers = 10};
  rig_.start();
  RawClient client(rig_.port());
  client.send(get("/v1/x", "X-Long: " + std::string(40'000, 'h') + "\r\n"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  std::string headers;
  for (int i = 0; i < 10; ++i) headers += "X-A: b\r\n";
  client.send(get("/v1/x", headers));
  const std::string answer = client.read_to_end();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(answer,
              HasSubstr("too many headers (limits.head is 50000 bytes, limits.headers 10)"));
  EXPECT_THAT(answer, HasSubstr("X-Pointsman-Error: too_many_headers"));
  EXPECT_EQ(rig_.own_errors("too_many_headers"), 1);
}

// 64 KiB and 256 lines are taken and passed on, and one more of either is not.
TEST_F(Framing, TheLimitsOfAHeadHoldToTheByteAndTheLine) {
  const std::string frame = get("/v1/x", "X-Long: \r\n");
  RawClient client(rig_.port());
  client.send(get("/v1/x", "X-Long: " + std::string(65'536 - frame.size(), 'h') + "\r\n"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(requests().back(), HasSubstr(std::string(65'536 - frame.size(), 'h')));
  client.send(get("/v1/x", "X-Long: " + std::string(65'537 - frame.size(), 'h') + "\r\n"));
  EXPECT_THAT(client.read_to_end(), HasSubstr("X-Pointsman-Error: head_too_large"));

  std::string lines;
  for (int i = 0; i < 255; ++i) lines += "X-A: b\r\n";
  RawClient other(rig_.port());
  other.send(get("/v1/x", lines));
  EXPECT_THAT(other.read_answer(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(requests().back(), HasSubstr(lines));
  other.send(get("/v1/x", lines + "X-A: b\r\n"));
  EXPECT_THAT(other.read_to_end(), HasSubstr("X-Pointsman-Error: too_many_headers"));
}

// Beyond features.max_body a body streams through.
TEST_F(Framing, ABodyOverTheHeldSizeStreamsThrough) {
  rig_.stop();
  rig_.options().limits.max_body = 100'000;
  rig_.start();
  RawClient client(rig_.port());
  for (const std::size_t size : {150'000, 3'000'000}) {
    std::string body = R"({"model":"m","prompt":")";
    while (body.size() < size) body += std::to_string(body.size()) + " ";
    body += R"("})";
    client.send(post("/v1/completions", body));
    EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200")) << size;
    EXPECT_THAT(requests().back(), EndsWith(body));
  }
  EXPECT_EQ(rig_.sum([](auto& shard) { return shard.bodies_not_held.value(); }), 2);
}

TEST_F(Framing, AChunkedBodyGoesOnAsItCame) {
  RawClient client(rig_.port());
  const std::string framed = "4;a=b\r\n{\"mo\r\n0b\r\ndel\":\"m1\"} \r\n0\r\n\r\n";
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" +
      framed);
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(requests().back(), EndsWith(framed));
  EXPECT_THAT(requests().back(), HasSubstr("Transfer-Encoding: chunked\r\n"));
}

TEST_F(Framing, ATrailerThatBelongsInTheHeadIsRefusedAndOthersPass) {
  const std::string begin =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "d\r\n{\"model\":\"m\"}\r\n0\r\n";
  RawClient good(rig_.port());
  // The played replica takes "0" and two line ends for the end of a chunked body.
  good.send(begin + "X-Checksum: 10\r\n\r\n");
  EXPECT_THAT(good.read_answer(), StartsWith("HTTP/1.1 200"));
  RawClient bad(rig_.port());
  bad.send(begin + "Content-Length: 1\r\n\r\n");
  const std::string answer = bad.read_to_end();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(answer, HasSubstr("X-Pointsman-Error: bad_body"));
  EXPECT_THAT(answer, HasSubstr("a trailer that may stand in the head only"));
}

TEST_F(Framing, ABodyOverTheLimitIsRefusedByItsLengthBeforeItIsRead) {
  rig_.stop();
  rig_.options().limits.request_body = 20;
  rig_.start();
  RawClient client(rig_.port());
  client.send(post("/v1/chat/completions", R"({"model":"m","a":1})"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 21\r\n"
      "Expect: 100-continue\r\n\r\n");
  const std::string answer = client.read_to_end();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(answer, HasSubstr("X-Pointsman-Error: body_too_large"));
  EXPECT_THAT(answer, HasSubstr("limits.request_body (20 bytes)"));
}

TEST_F(Framing, AChunkedBodyIsRefusedOnceItPassesTheLimit) {
  // The second limit is passed while the body streams through to the replica.
  for (const std::size_t limit : {std::size_t{50'000}, std::size_t{400'000}}) {
    rig_.stop();
    rig_.options().limits.request_body = limit;
    rig_.options().limits.max_body = 100'000;
    rig_.start();
    RawClient client(rig_.port());
    client.send(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    const std::string chunk = "2710\r\n" + std::string(10'000, ' ') + "\r\n";
    for (std::size_t sent = 0; sent <= limit; sent += 10'000) client.send(chunk);
    const std::string answer = client.read_to_end();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 413")) << limit;
    EXPECT_THAT(answer, HasSubstr("Connection: close"));
  }
}

TEST_F(Framing, ExpectContinueIsAnsweredBeforeTheBody) {
  RawClient client(rig_.port());
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(R"({"model":"m"})");
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(requests().back(), Not(HasSubstr("Expect")));
}

TEST_F(Framing, ExpectContinueOnARefusedPathGetsTheRefusalAlone) {
  RawClient client(rig_.port());
  client.send(
      "POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 404"));
}

class AnswerFraming : public ::testing::Test {
 protected:
  // The answer to one request where the replica sends `bytes` and closes.
  std::string answer_to(const std::string& request, const std::string& bytes) {
    FakeReplica replica([&](FakeConnection& connection) {
      connection.read_request();
      connection.send(bytes);
    });
    ProxyRig rig;
    const ReplicaIndex index = rig.add(replica.port());
    rig.start();
    RawClient client(rig.port());
    client.send(request);
    const std::string answer = client.read_to_end();
    error_ = client.last_error();
    EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == 0; }));
    rig.stop();
    return answer;
  }
  [[nodiscard]] bool clean_end() const { return error_ == asio::error::eof; }
  std::error_code error_;
};

// Case D07.
TEST_F(AnswerFraming, ABodyUntilCloseComesWhole) {
  const std::string answer =
      answer_to(post("/v1/chat/completions", "{}"), test_data("framing/response-until-close.http"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("Connection: close"));
  EXPECT_THAT(answer, EndsWith(R"({"id":"r1","choices":[]})"));
  EXPECT_TRUE(clean_end());
}

// Case D08.
TEST_F(AnswerFraming, AnAnswerToHeadHasNoBody) {
  const std::string answer =
      answer_to("HEAD /v1/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 10485760\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST_F(AnswerFraming, AnswersWithoutABodyNeedNone) {
  for (const char* status : {"204 No Content", "304 Not Modified"}) {
    const std::string answer =
        answer_to("GET /v1/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                  "HTTP/1.1 " + std::string(status) + "\r\n\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 " + std::string(status)));
    EXPECT_TRUE(clean_end());
  }
}

TEST_F(AnswerFraming, ClientsOfHttp10GetChunksUnpacked) {
  const std::string answer = answer_to("GET /v1/x HTTP/1.0\r\n\r\n",
                                       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                                       "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
  EXPECT_THAT(answer, Not(HasSubstr("Transfer-Encoding")));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nhello world"));
  EXPECT_TRUE(clean_end());
}

TEST_F(AnswerFraming, TrailersSurvive) {
  const std::string answer = answer_to("GET /v1/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                                       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                                       "5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n");
  EXPECT_THAT(answer, EndsWith("5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"));
}

// RFC 9110, 15.2. Nobody waits for a 100 here: the wish for one is answered by the router.
TEST_F(AnswerFraming, InterimAnswersGoOnButForThe100) {
  const std::string answer =
      answer_to(post("/v1/chat/completions", "{}", "Connection: close\r\n"),
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nX: y\r\n\r\n"
                "HTTP/1.1 103 Early Hints\r\nConnection: X-Hop\r\nX-Hop: 1\r\n"
                "Content-Length: 5\r\nLink: </a>\r\n\r\n"
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 102 Processing\r\nX: y\r\n\r\n"
                                 "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
                                 "HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, EndsWith("{}"));
}

TEST_F(AnswerFraming, ClientsOfHttp10GetNoInterimAnswer) {
  const std::string answer = answer_to("GET /v1/x HTTP/1.0\r\n\r\n",
                                       "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
                                       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
}

// However the replica's bytes are cut, and however large the body of the answer.
TEST_F(AnswerFraming, AnInterimAnswerMayComeInPieces) {
  FakeReplica replica([](FakeConnection& connection) {
    connection.read_request();
    for (const char byte : std::string("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")) {
      connection.send({&byte, 1});
    }
    connection.send_json("{}");
    connection.read_to_end();
  });
  ProxyRig rig;
  rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", kChat));
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  client.close();
  rig.stop();
}

TEST_F(AnswerFraming, HeadersOfThisHopDoNotComeBack) {
  const std::string answer =
      answer_to("GET /v1/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                "HTTP/1.1 200 OK\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nX-End: 2\r\n"
                "Keep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(answer, Not(HasSubstr("X-Hop")));
  EXPECT_THAT(answer, Not(HasSubstr("Keep-Alive")));
  EXPECT_THAT(answer, HasSubstr("X-End: 2\r\n"));
}

TEST_F(AnswerFraming, AShortBodyIsVisiblyShort) {
  const std::string answer = answer_to(
      post("/v1/chat/completions", "{}"),
      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"a\":");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 100"));
  EXPECT_THAT(answer, EndsWith("{\"a\":"));
}

TEST_F(AnswerFraming, AnAnswerThatDoesNotParseIsABadGateway) {
  for (const char* bytes :
       {"garbage\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "HTTP/2 200\r\n\r\n"}) {
    const std::string answer =
        answer_to(post("/v1/chat/completions", "{}", "Connection: close\r\n"), bytes);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 502")) << bytes;
  }
}

}  // namespace
}  // namespace pointsman::test
