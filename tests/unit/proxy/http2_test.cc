// Requests over HTTP/2: nghttp2's client on one side, a replica of the test on the other.

#include <string>
#include <vector>

#include "http/head_writer.h"
#include "support/http2_client.h"
#include "support/plain_message.h"
#include "support/proxy_test.h"
#include "support/stepped_proxy.h"

namespace pointsman::test {
namespace {

const Fields kLength13 = {{"content-length", "13"}};
const std::string kBody = R"({"model":"m"})";
const std::string kOk = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Upper: V\r\n\r\n{}";
const std::string kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const std::string kEvent = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";

std::string chunk(std::string_view data) {
  std::string out;
  append_chunk(out, data);
  return out;
}

class Http2 : public ::testing::Test {
 protected:
  void SetUp() override { proxy_.add(listener_.port()); }

  // Until the replica has a whole request on `socket`.
  [[nodiscard]] bool asked(Http2Client& client, StepSocket& socket) {
    return client.until([&] {
      if (!socket.open()) socket = listener_.accept();
      socket.receive();
      return read_message(socket.in()).has_value();
    });
  }
  [[nodiscard]] bool idle(Http2Client& client) {
    return client.until(
        [&] { return proxy_.in_flight() == 0 && proxy_.metrics().in_flight.value() == 0; });
  }
  // Its request reaches the replica and is answered so.
  void exchange(Http2Client& client, std::int32_t id, StepSocket& replica,
                const std::string& answer) {
    ASSERT_TRUE(asked(client, replica));
    replica.send(answer);
    ASSERT_TRUE(client.answered(id)) << client.answer(id).data;
  }

  StepListener listener_;
  SteppedProxy proxy_;
};

TEST_F(Http2, ARequestReachesTheReplicaAsOneOfHttp11AndItsAnswerComesBack) {
  Http2Client client(proxy_);
  StepSocket replica;
  const std::int32_t id = client.request(
      Http2Client::post("/v1/chat/completions?a=b",
                        {{"content-length", "13"}, {"x-a", "1"}, {"te", "trailers"}}),
      kBody);
  ASSERT_TRUE(asked(client, replica));
  const PlainMessage request = *read_message(replica.in());
  EXPECT_EQ(request.start, "POST /v1/chat/completions?a=b HTTP/1.1");
  EXPECT_EQ(request.body, kBody);
  EXPECT_EQ(request.header("x-a"), "1");
  EXPECT_EQ(request.header("te"), "");
  EXPECT_EQ(request.header("host"), "127.0.0.1:" + std::to_string(listener_.port()));
  replica.send(
      "HTTP/1.1 201 Made\r\nContent-Length: 2\r\nX-Upper: V\r\nConnection: x-hop\r\nX-Hop: 1\r\n"
      "Keep-Alive: 5\r\n\r\n{}");
  ASSERT_TRUE(client.answered(id));
  const Http2Answer& answer = client.answer(id);
  EXPECT_EQ(answer.status(), "201");
  EXPECT_EQ(answer.field("content-length"), "2");
  EXPECT_EQ(answer.field("x-upper"), "V");
  EXPECT_NE(answer.field("x-request-id"), "");
  for (const char* hop : {"connection", "keep-alive", "x-hop", "transfer-encoding"}) {
    EXPECT_EQ(answer.field(hop), "") << hop;
  }
  EXPECT_EQ(answer.data, "{}");
  EXPECT_TRUE(idle(client));
  EXPECT_EQ(proxy_.metrics().http2_streams.value(), 1U);
  EXPECT_EQ(proxy_.metrics().http2_streams_unanswered.value(), 0U);
  EXPECT_EQ(proxy_.metrics().internal_errors.value(), 0U);
}

TEST_F(Http2, ManyRequestsAreServedAtOnceAndInAnyOrder) {
  Http2Client client(proxy_);
  std::vector<StepSocket> replicas(20);
  std::vector<std::int32_t> ids;
  for (StepSocket& replica : replicas) {
    ids.push_back(client.request(Http2Client::post("/v1/chat/completions", kLength13), kBody));
    ASSERT_TRUE(asked(client, replica));
  }
  EXPECT_EQ(proxy_.in_flight(), 20);
  for (std::size_t i = replicas.size(); i-- > 0;) {
    replicas[i].send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n" + std::to_string(100 + i));
    ASSERT_TRUE(client.answered(ids[i]));
    EXPECT_EQ(client.answer(ids[i]).data, std::to_string(100 + i));
  }
  EXPECT_TRUE(idle(client));
  EXPECT_EQ(proxy_.connections(), 1);
}

TEST_F(Http2, TheSameForEverySplitOfWhatTheClientSends) {
  for (const std::size_t piece : {1, 2, 3, 7, 9, 10, 64}) {
    Http2Client client(proxy_, {.piece = piece});
    StepSocket replica;
    const std::int32_t id =
        client.request(Http2Client::post("/v1/chat/completions"), kBody, false, {{"x-t", "v"}});
    ASSERT_TRUE(asked(client, replica));
    EXPECT_EQ(read_message(replica.in())->body, kBody);
    EXPECT_THAT(replica.in(), EndsWith("0\r\nx-t: v\r\n\r\n"));
    replica.send(kOk);
    ASSERT_TRUE(client.answered(id)) << piece;
    EXPECT_EQ(client.answer(id).data, "{}");
  }
}

TEST_F(Http2, TheSameForEverySplitOfWhatTheReplicaSends) {
  const std::string whole = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + kStreamHead +
                            chunk(kEvent) + chunk("data: [DONE]\n\n") +
                            "0\r\nX-T: v\r\nX-U: w\r\n\r\n";
  for (std::size_t cut = 1; cut < whole.size(); ++cut) {
    Http2Client client(proxy_);
    StepSocket replica;
    const std::int32_t id =
        client.request(Http2Client::post("/v1/chat/completions", kLength13), kBody);
    ASSERT_TRUE(asked(client, replica));
    replica.send(std::string_view(whole).substr(0, cut));
    client.settle();
    replica.send(std::string_view(whole).substr(cut));
    ASSERT_TRUE(client.answered(id)) << cut;
    const Http2Answer& answer = client.answer(id);
    EXPECT_EQ(answer.data, kEvent + "data: [DONE]\n\n");
    ASSERT_EQ(answer.interim.size(), 1U);
    EXPECT_EQ(answer.interim[0][1].first, "link");
    EXPECT_EQ(answer.trailers, (Fields{{"x-t", "v"}, {"x-u", "w"}}));
    EXPECT_EQ(answer.status(), "200");
  }
  EXPECT_EQ(proxy_.metrics().internal_errors.value(), 0U);
}

TEST_F(Http2, AnEventGoesOutInTheTurnInWhichItCame) {
  Http2Client client(proxy_);
  StepSocket replica;
  const std::int32_t id =
      client.request(Http2Client::post("/v1/chat/completions", kLength13), kBody);
  ASSERT_TRUE(asked(client, replica));
  replica.send(kStreamHead + chunk(kEvent));
  ASSERT_TRUE(client.until([&] { return client.answer(id).data == kEvent; }));
  for (int i = 0; i < 5; ++i) {
    client.answer(id).data.clear();
    replica.send(chunk(kEvent));
    // One turn of the poller sees the bytes; nothing is left for a later one.
    ASSERT_TRUE(proxy_.until([&] {
      client.move();
      return client.answer(id).data == kEvent;
    }));
  }
  replica.send("0\r\n\r\n");
  EXPECT_TRUE(client.answered(id));
}

TEST_F(Http2, ALargeBodyComesWholeBothWays) {
  const std::string big = "{\"model\":\"m\",\"x\":\"" + std::string(1'000'000, 'a') + "\"}";
  for (const bool stated : {true, false}) {
    Http2Client client(proxy_);
    StepSocket replica;
    Fields more;
    if (stated) more.emplace_back("content-length", std::to_string(big.size()));
    const std::int32_t id = client.request(Http2Client::post("/v1/embeddings", more), big);
    ASSERT_TRUE(asked(client, replica));
    EXPECT_EQ(read_message(replica.in())->body, big);
    std::string answer =
        "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(big.size()) + "\r\n\r\n" + big;
    ASSERT_TRUE(client.until([&] {
      answer.erase(0, replica.send(answer));
      return client.answer(id).closed;
    }));
    EXPECT_EQ(client.answer(id).data, big);
    EXPECT_TRUE(idle(client));
  }
  EXPECT_EQ(proxy_.held_bytes(), 0U);
  EXPECT_EQ(proxy_.metrics().internal_errors.value(), 0U);
}

TEST_F(Http2, ABodyThatIsNotHeldStreamsThrough) {
  ProxyOptions options;
  options.limits.max_body = 64 * 1024;
  SteppedProxy proxy(options);
  proxy.add(listener_.port());
  const std::string big(2'000'000, 'a');
  Http2Client client(proxy);
  StepSocket replica;
  const std::int32_t id = client.request(Http2Client::post("/v1/embeddings"), big);
  ASSERT_TRUE(client.until([&] {
    if (!replica.open()) replica = listener_.accept();
    replica.receive();
    return read_message(replica.in()).has_value();
  }));
  EXPECT_EQ(read_message(replica.in())->body, big);
  replica.send(kOk);
  EXPECT_TRUE(client.answered(id));
  EXPECT_EQ(proxy.metrics().bodies_not_held.value(), 1U);
}

TEST_F(Http2, CookieCrumbsAreJoined) {
  Http2Client client(proxy_);
  StepSocket replica;
  const std::int32_t id = client.request(
      Http2Client::get("/v1/files", {{"cookie", "a=1"}, {"x-b", "2"}, {"cookie", "c=3"}}));
  ASSERT_TRUE(asked(client, replica));
  EXPECT_EQ(read_message(replica.in())->header("cookie"), "a=1; c=3");
  replica.send(kOk);
  EXPECT_TRUE(client.answered(id));
}

TEST_F(Http2, AnswersWithoutABodyEndWithTheirHead) {
  Http2Client client(proxy_);
  StepSocket replica;
  Fields head = Http2Client::get("/v1/files");
  head[0].second = "HEAD";
  exchange(client, client.request(head), replica, "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n");
  EXPECT_EQ(client.answer(1).field("content-length"), "77");
  EXPECT_EQ(client.answer(1).data_frames, 0U);
  replica.in().clear();
  exchange(client, client.request(Http2Client::get("/v1/files")), replica,
           "HTTP/1.1 204 No Content\r\n\r\n");
  EXPECT_EQ(client.answer(3).status(), "204");
  replica.in().clear();
  exchange(client, client.request(Http2Client::get("/v1/files")), replica,
           "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(client.answer(5).data_frames, 0U);
}

TEST_F(Http2, AnAnswerThatEndsWithItsConnectionEndsWell) {
  Http2Client client(proxy_);
  StepSocket replica;
  const std::int32_t id = client.request(Http2Client::get("/v1/files"));
  ASSERT_TRUE(asked(client, replica));
  replica.send("HTTP/1.1 200 OK\r\n\r\nuntil the end");
  ASSERT_TRUE(client.until([&] { return !client.answer(id).data.empty(); }));
  EXPECT_FALSE(client.answer(id).ended);
  replica.close();
  ASSERT_TRUE(client.answered(id));
  EXPECT_EQ(client.answer(id).data, "until the end");
  EXPECT_FALSE(client.answer(id).reset);
}

TEST_F(Http2, AnAnswerThatIsCutIsReset) {
  struct Case {
    std::string answer;
    bool broken;  // the replica's connection: by a RST
  };
  for (const Case& c : {Case{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", false},
                        Case{kStreamHead + chunk(kEvent), false},
                        Case{kStreamHead + chunk(kEvent) + "5\r\nda", false},
                        Case{"HTTP/1.1 200 OK\r\n\r\nhalf", true}}) {
    Http2Client client(proxy_);
    StepSocket replica;
    const std::int32_t id =
        client.request(Http2Client::post("/v1/chat/completions", kLength13), kBody);
    ASSERT_TRUE(asked(client, replica));
    replica.send(c.answer);
    ASSERT_TRUE(client.until([&] { return !client.answer(id).data.empty(); }));
    if (c.broken) {
      replica.reset();
    } else {
      replica.close();
    }
    EXPECT_FALSE(client.answered(id)) << c.answer;
    ASSERT_TRUE(client.answer(id).reset) << c.answer;
    EXPECT_EQ(*client.answer(id).reset, NGHTTP2_INTERNAL_ERROR);
    EXPECT_TRUE(idle(client));
    // The connection lives on.
    StepSocket other;
    exchange(client, client.request(Http2Client::get("/v1/files")), other, kOk);
  }
}

TEST_F(Http2, OwnErrorsAreAnswersOfHttp2) {
  struct Case {
    Fields request;
    std::string status;
    std::string word;
  };
  Fields long_field = {{"x-long", std::string(40'000, 'a')}, {"x-more", std::string(40'000, 'a')}};
  Fields many(300, {"x-a", "b"});
  Fields options = Http2Client::get("*");
  options[0].second = "OPTIONS";
  Fields hosts = Http2Client::get("/v1/files", {{"host", "other.test"}});
  const std::vector<Case> cases = {
      {Http2Client::get("/v1//files"), "400", "bad_path"},
      {Http2Client::get("/v1/%2e%2e/files"), "400", "bad_path"},
      {Http2Client::get("/nowhere"), "404", "not_found"},
      {options, "404", "not_found"},
      {hosts, "400", "bad_head"},
      {Http2Client::get("/v1/files", long_field), "431", "head_too_large"},
      {Http2Client::get("/v1/files", many), "431", "too_many_headers"}};
  Http2Client client(proxy_);
  for (const Case& c : cases) {
    const std::int32_t id = client.request(c.request);
    ASSERT_TRUE(client.answered(id)) << c.word;
    EXPECT_EQ(client.answer(id).status(), c.status) << c.request[3].second;
    EXPECT_EQ(client.answer(id).field("x-pointsman-error"), c.word);
    EXPECT_THAT(client.answer(id).data, HasSubstr("\"error\""));
  }
  EXPECT_TRUE(idle(client));
  // The connection has survived all of them.
  StepSocket replica;
  exchange(client, client.request(Http2Client::get("/v1/files")), replica, kOk);
}

TEST_F(Http2, AHostThatSaysTheSameIsNoSecondOne) {
  Http2Client client(proxy_);
  StepSocket replica;
  exchange(client, client.request(Http2Client::get("/v1/files", {{"host", "Router.Test"}})),
           replica, kOk);
}

TEST_F(Http2, MalformedRequestsAreReset) {
  Fields no_path = Http2Client::get("/v1/files");
  no_path.pop_back();
  Fields no_host = Http2Client::get("/v1/files");
  no_host.erase(no_host.begin() + 2);
  Fields relative = Http2Client::get("v1/files");
  const std::vector<Fields> requests = {
      Http2Client::get("/v1/files", {{"connection", "close"}}),
      Http2Client::get("/v1/files", {{"transfer-encoding", "chunked"}}),
      Http2Client::get("/v1/files", {{"upgrade", "websocket"}}),
      Http2Client::get("/v1/files", {{"te", "gzip"}}),
      Http2Client::get("/v1/files", {{"x-a", "b\nx-c: d"}}),
      Http2Client::get("/v1/files", {{"x a", "b"}}),
      Http2Client::get("/v1/files", {{":path", "/v1/other"}}),
      Http2Client::get("/v1/files x"),
      no_path,
      no_host,
      relative};
  Http2Client client(proxy_);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::int32_t id = client.request(requests[i]);
    EXPECT_FALSE(client.answered(id)) << i;
    ASSERT_TRUE(client.answer(id).reset) << i;
    EXPECT_EQ(*client.answer(id).reset, NGHTTP2_PROTOCOL_ERROR) << i;
  }
  EXPECT_EQ(proxy_.metrics().http2_streams_unanswered.value(), requests.size());
  EXPECT_FALSE(listener_.accept().open());
  StepSocket replica;
  exchange(client, client.request(Http2Client::get("/v1/files")), replica, kOk);
}

TEST_F(Http2, ABodyOfAnotherLengthThanStatedIsReset) {
  for (const std::string& body : {std::string("short"), std::string(20, 'x')}) {
    Http2Client client(proxy_);
    const std::int32_t id =
        client.request(Http2Client::post("/v1/chat/completions", kLength13), body);
    EXPECT_FALSE(client.answered(id));
    EXPECT_EQ(client.answer(id).reset, NGHTTP2_PROTOCOL_ERROR);
    EXPECT_TRUE(idle(client));
  }
}

TEST_F(Http2, AClientThatResetsItsStreamHasLeft) {
  Http2Client client(proxy_);
  StepSocket waiting;
  StepSocket streaming;
  const std::int32_t first =
      client.request(Http2Client::post("/v1/chat/completions", kLength13), kBody);
  ASSERT_TRUE(asked(client, waiting));
  const std::int32_t second =
      client.request(Http2Client::post("/v1/chat/completions", kLength13), kBody);
  ASSERT_TRUE(asked(client, streaming));
  streaming.send(kStreamHead + chunk(kEvent));
  ASSERT_TRUE(client.until([&] { return client.answer(second).data == kEvent; }));
  EXPECT_EQ(proxy_.in_flight(), 2);
  client.reset(first);
  client.reset(second);
  EXPECT_TRUE(idle(client));
  EXPECT_TRUE(proxy_.over(waiting));
  EXPECT_TRUE(proxy_.over(streaming));
  EXPECT_EQ(proxy_.connections(), 1);
  StepSocket replica;
  exchange(client, client.request(Http2Client::get("/v1/files")), replica, kOk);
}

TEST_F(Http2, ALostConnectionEndsAllItsStreams) {
  for (const bool reset : {true, false}) {
    Http2Client client(proxy_);
    std::vector<StepSocket> replicas(5);
    for (StepSocket& replica : replicas) {
      client.request(Http2Client::post("/v1/chat/completions", kLength13), kBody);
      ASSERT_TRUE(asked(client, replica));
    }
    replicas[0].send(kStreamHead + chunk(kEvent));
    ASSERT_TRUE(client.until([&] { return client.answer(1).data == kEvent; }));
    if (reset) {
      client.socket().reset();
    } else {
      client.socket().shut_write();
    }
    EXPECT_TRUE(proxy_.until([&] { return proxy_.in_flight() == 0 && proxy_.connections() == 0; }));
    for (StepSocket& replica : replicas) EXPECT_TRUE(proxy_.over(replica));
    EXPECT_EQ(proxy_.metrics().in_flight.value(), 0);
    EXPECT_EQ(proxy_.metrics().http2_connections.value(), 0);
  }
}

TEST_F(Http2, AShutWindowBlocksItsOwnStreamOnly) {
  Http2Client client(proxy_, {.stream_window = 1000, .auto_window = false});
  StepSocket slow;
  StepSocket quick;
  const std::int32_t blocked =
      client.request(Http2Client::post("/v1/chat/completions", kLength13), kBody);
  ASSERT_TRUE(asked(client, slow));
  std::string large;
  large.resize(30'000'000, 'x');
  std::string unsent =
      "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(large.size()) + "\r\n\r\n" + large;
  for (int i = 0; i < 200; ++i) {
    unsent.erase(0, slow.send(unsent));
    client.move();
    proxy_.turn();
  }
  EXPECT_EQ(client.answer(blocked).data.size(), 1000U);
  // What the replica could not send waits with it.
  EXPECT_GT(unsent.size(), 0U);
  exchange(client, client.request(Http2Client::post("/v1/chat/completions", kLength13), kBody),
           quick, kOk);
  // It opens, as far as 500 bytes at a time go.
  for (int i = 0; i < 4; ++i) {
    nghttp2_submit_window_update(client.session(), NGHTTP2_FLAG_NONE, blocked, 500);
    ASSERT_TRUE(client.until([&] {
      return client.answer(blocked).data.size() == 1000U + 500U * static_cast<std::size_t>(i + 1);
    }));
  }
  // A client that takes no byte is dropped after client_stall; its other streams are not.
  proxy_.advance(std::chrono::minutes(6));
  client.settle();
  EXPECT_EQ(client.answer(blocked).reset, NGHTTP2_INTERNAL_ERROR);
  EXPECT_TRUE(idle(client));
  StepSocket other;
  exchange(client, client.request(Http2Client::get("/v1/files")), other, kOk);
}

TEST_F(Http2, AWholeAnswerWaitsForTheWindowAndEndsWell) {
  const std::string text(3000, 'y');
  for (const std::string& head :
       {std::string("HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\n\r\n")}) {
    Http2Client client(proxy_, {.stream_window = 1500, .auto_window = false});
    StepSocket replica;
    const std::int32_t id = client.request(Http2Client::get("/v1/files"));
    ASSERT_TRUE(asked(client, replica));
    const bool chunked = head.find("chunked") != std::string::npos;
    replica.send(head + (chunked ? chunk(text) + "0\r\n\r\n" : text));
    replica.close();
    ASSERT_TRUE(client.until([&] { return client.answer(id).data.size() == 1500; }));
    client.settle();
    EXPECT_FALSE(client.answer(id).ended);
    nghttp2_submit_window_update(client.session(), NGHTTP2_FLAG_NONE, id, 1500);
    ASSERT_TRUE(client.until([&] { return client.answer(id).data.size() == 3000; }));
    client.settle();
    // An end without data needs an open window too, as nghttp2 sends it.
    nghttp2_submit_window_update(client.session(), NGHTTP2_FLAG_NONE, id, 1);
    ASSERT_TRUE(client.answered(id)) << head;
    EXPECT_EQ(client.answer(id).data, text);
    EXPECT_FALSE(client.answer(id).reset);
    EXPECT_TRUE(idle(client));
  }
}

TEST_F(Http2, RequestBodiesOpenTheWindowOnlyAsTheyAreTaken) {
  ProxyOptions options;
  options.limits.max_body = 64 * 1024;
  SteppedProxy proxy(options);
  proxy.add(listener_.port());
  Http2Client client(proxy);
  StepSocket replica;
  std::string large;
  large.resize(20'000'000, 'a');
  client.request(Http2Client::post("/v1/embeddings"), large);
  ASSERT_TRUE(client.until([&] {
    if (!replica.open()) replica = listener_.accept();
    return replica.open();
  }));
  // The replica takes nothing: kernel buffers fill, then the window stays shut.
  std::int32_t window = -1;
  std::size_t same = 0;
  ASSERT_TRUE(client.until([&] {
    const std::int32_t now = nghttp2_session_get_stream_remote_window_size(client.session(), 1);
    same = now == window ? same + 1 : 0;
    window = now;
    return window == 0 && same > 50;
  }));
  // Another request of the connection is not held up by it.
  StepSocket other;
  const std::int32_t id = client.request(Http2Client::get("/v1/files"));
  ASSERT_TRUE(client.until([&] {
    if (!other.open()) other = listener_.accept();
    other.receive();
    return read_message(other.in()).has_value();
  }));
  other.send(kOk);
  EXPECT_TRUE(client.answered(id));
}

TEST_F(Http2, ABodyThatNeverEndsTimesOut) {
  Http2Client client(proxy_);
  const std::int32_t id = client.request(Http2Client::post("/v1/chat/completions"), "{", true);
  client.settle();
  proxy_.advance(std::chrono::seconds(61));
  ASSERT_TRUE(client.answered(id));
  EXPECT_EQ(client.answer(id).status(), "408");
  // The rest of the request is not wanted (RFC 9113, 8.1).
  EXPECT_TRUE(client.until([&] { return client.answer(id).reset.has_value(); }));
  EXPECT_EQ(client.answer(id).reset, NGHTTP2_NO_ERROR);
  EXPECT_TRUE(idle(client));
}

TEST_F(Http2, ExpectIsAnsweredByTheRouter) {
  Http2Client client(proxy_);
  StepSocket replica;
  const std::int32_t id = client.request(
      Http2Client::post("/v1/chat/completions", {{"expect", "100-continue"}}), "", true);
  ASSERT_TRUE(client.until([&] { return client.answer(id).interim.size() == 1; }));
  EXPECT_EQ(client.answer(id).interim[0][0].second, "100");
  client.add_body(id, kBody);
  client.end_body(id);
  exchange(client, id, replica, kOk);
  EXPECT_EQ(client.answer(id).status(), "200");
}

TEST_F(Http2, AnIdleConnectionIsToldToGo) {
  Http2Client client(proxy_);
  StepSocket replica;
  exchange(client, client.request(Http2Client::get("/v1/files")), replica, kOk);
  client.settle();
  proxy_.advance(std::chrono::seconds(76));
  EXPECT_TRUE(client.over());
  EXPECT_EQ(client.goaway(), NGHTTP2_NO_ERROR);
  client.socket().close();
  EXPECT_TRUE(proxy_.until([&] { return proxy_.connections() == 0; }));
}

TEST_F(Http2, ASilentPrefaceTimesOut) {
  for (const std::size_t size : {4, 20, 24}) {
    StepSocket client = proxy_.client();
    client.send(Http2Connection::kPreface.substr(0, size));
    proxy_.turn(5);
    proxy_.advance(std::chrono::seconds(11));
    EXPECT_TRUE(proxy_.over(client)) << size;
  }
  EXPECT_TRUE(proxy_.until([&] { return proxy_.connections() == 0; }));
}

TEST_F(Http2, WhatOnlyBeginsLikeThePrefaceIsARequestOfHttp11) {
  StepSocket client = proxy_.client();
  client.send("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n");
  ASSERT_TRUE(proxy_.told(client));
  EXPECT_EQ(read_message(client.in())->status(), 505);
}

TEST_F(Http2, DrainingLetsRunningStreamsFinish) {
  Http2Client client(proxy_);
  StepSocket replica;
  const std::int32_t id =
      client.request(Http2Client::post("/v1/chat/completions", kLength13), kBody);
  ASSERT_TRUE(asked(client, replica));
  proxy_.shard().drain();
  ASSERT_TRUE(client.until([&] { return client.goaway() && client.last_stream() == id; }));
  EXPECT_EQ(client.goaway(), NGHTTP2_NO_ERROR);
  replica.send(kOk);
  ASSERT_TRUE(client.answered(id));
  EXPECT_EQ(client.answer(id).data, "{}");
  EXPECT_TRUE(client.over());
  EXPECT_TRUE(client.socket().ended());
  client.socket().close();
  EXPECT_TRUE(proxy_.until([&] { return proxy_.connections() == 0; }));
}

TEST_F(Http2, TheEndOfGraceResetsWhatStillRuns) {
  Http2Client client(proxy_);
  StepSocket replica;
  const std::int32_t id =
      client.request(Http2Client::post("/v1/chat/completions", kLength13), kBody);
  ASSERT_TRUE(asked(client, replica));
  replica.send(kStreamHead + chunk(kEvent) + "5\r\nda");
  ASSERT_TRUE(client.until([&] { return !client.answer(id).data.empty(); }));
  proxy_.shard().cut_everything();
  client.move();
  EXPECT_EQ(client.answer(id).reset, NGHTTP2_INTERNAL_ERROR);
  EXPECT_EQ(proxy_.in_flight(), 0);
  EXPECT_EQ(proxy_.connections(), 0);
}

}  // namespace
}  // namespace pointsman::test
