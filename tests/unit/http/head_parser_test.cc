#include "http/head_parser.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_data.h"

namespace pointsman {
namespace {

using testing::ElementsAre;

// A request with these header lines after the request line and Host.
std::string with(const std::string& lines, const std::string& start = "POST /v1/x HTTP/1.1") {
  return start + "\r\nHost: h\r\n" + lines + "\r\n";
}

HeadResult parse(const std::string& bytes) {
  RequestHeadParser parser;
  return parser.parse(bytes);
}

HeadResult parse_response(const std::string& bytes) {
  ResponseHeadParser parser;
  return parser.parse(bytes);
}

void expect_refused(const std::string& bytes, int status = 400) {
  const HeadResult result = parse(bytes);
  EXPECT_EQ(result.status, HeadResult::kBad) << bytes;
  EXPECT_EQ(result.http_status, status) << bytes;
  EXPECT_FALSE(result.reason.empty());
}

void expect_taken(const std::string& bytes) {
  const HeadResult result = parse(bytes);
  EXPECT_EQ(result.status, HeadResult::kDone) << bytes << result.reason;
}

TEST(RequestHeadParser, ReadsARequest) {
  const std::string bytes =
      "POST /v1/chat/completions?a=1&b HTTP/1.1\r\nHost: router.test:8080\r\n"
      "Content-Type: application/json\r\nX-Empty:\r\nX-Spaced: \t two words \t\r\n"
      "content-length: 28\r\nX-Request-Id: abc\r\n\r\n{\"model\"";
  RequestHeadParser parser;
  const HeadResult result = parser.parse(bytes);
  ASSERT_EQ(result.status, HeadResult::kDone);
  EXPECT_EQ(bytes.substr(result.size), "{\"model\"");
  const RequestHead& head = parser.head();
  EXPECT_EQ(head.size(), result.size);
  EXPECT_EQ(head.method(), "POST");
  EXPECT_EQ(head.target(), "/v1/chat/completions?a=1&b");
  EXPECT_EQ(head.path(), "/v1/chat/completions");
  EXPECT_EQ(head.query(), "?a=1&b");
  EXPECT_EQ(head.host(), "router.test:8080");
  EXPECT_EQ(head.content_type(), "application/json");
  EXPECT_EQ(head.content_length(), 28U);
  EXPECT_EQ(head.request_id(), "abc");
  EXPECT_EQ(head.version_minor(), 1);
  EXPECT_TRUE(head.keep_alive());
  EXPECT_TRUE(head.has_body());
  EXPECT_FALSE(head.chunked());
  EXPECT_FALSE(head.expect_continue());
  ASSERT_EQ(head.header_count(), 6U);
  EXPECT_EQ(head.header(2).name, "X-Empty");
  EXPECT_EQ(head.header(2).value, "");
  EXPECT_EQ(head.header(3).value, "two words");
  EXPECT_EQ(head.line(3), "X-Spaced: \t two words \t\r\n");
  EXPECT_EQ(head.line(5), "X-Request-Id: abc\r\n");
  EXPECT_EQ(head.find("x-SPACED"), "two words");
  EXPECT_EQ(head.find("absent"), std::nullopt);
}

TEST(RequestHeadParser, SameAnswerForEverySplit) {
  const std::vector<std::string> heads = {
      with("Content-Length: 3\r\nConnection: keep-alive, x-a\r\n"),
      with("Transfer-Encoding: chunked\r\n", "\r\nGET http://h:1/p?q HTTP/1.0"),
      with("X: a\x01\r\n"),
      with("X : a\r\n"),
      with("", "GET /\x80 HTTP/1.1"),
      with("Content-Length: 1\r\nContent-Length: 1\r\n"),
      "GET / HTTP/2.0\r\n\r\n",
      "GET / HTTP/3.15\r\n\r\n",
      "GET / HTTP/1.15\r\n\r\n",
      "GET /  HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\nHost: h\n\n",
  };
  for (const std::string& bytes : heads) {
    const HeadResult whole = parse(bytes);
    RequestHeadParser parser;
    HeadResult result;
    for (std::size_t size = 0; size <= bytes.size(); ++size) {
      const std::string part = bytes.substr(0, size);  // at a new address each time
      result = parser.parse(part);
      if (result.status != HeadResult::kNeedMore) break;
    }
    EXPECT_EQ(result.status, whole.status) << bytes;
    EXPECT_EQ(result.size, whole.size) << bytes;
    EXPECT_EQ(result.http_status, whole.http_status) << bytes;
    EXPECT_EQ(result.reason, whole.reason) << bytes;
  }
}

TEST(RequestHeadParser, HeadFollowsItsBytesToAnotherPlace) {
  const std::string first = with("X-A: 1\r\n");
  RequestHeadParser parser;
  ASSERT_EQ(parser.parse(first).status, HeadResult::kDone);
  const std::string second = first;
  parser.head().rebase(second.data());
  EXPECT_EQ(parser.head().header(1).value.data(), second.data() + second.find('1', 20));
}

TEST(RequestHeadParser, ResetForgetsTheMessageBefore) {
  RequestHeadParser parser;
  parser.parse(with("Content-Length: 3\r\nConnection: close, x-a\r\nX-Request-Id: 1\r\n"));
  parser.reset();
  const std::string bytes = with("X-A: 1\r\n");
  ASSERT_EQ(parser.parse(bytes).status, HeadResult::kDone);
  EXPECT_EQ(parser.head().content_length(), std::nullopt);
  EXPECT_TRUE(parser.head().keep_alive());
  EXPECT_FALSE(parser.head().is_hop_by_hop(parser.head().header(1)));
  EXPECT_EQ(parser.head().request_id(), "");
}

// D01
TEST(RequestHeadParser, RefusesALengthBesideACoding) {
  expect_refused(test_data("framing/cl-and-te.http"));
  expect_refused(with("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"));
}

// D02
TEST(RequestHeadParser, RefusesTwoLengthsEvenEqualOnes) {
  expect_refused(test_data("framing/two-lengths.http"));
  expect_refused(with("Content-Length: 28\r\nContent-Length: 28\r\n"));
  expect_refused(with("Content-Length: 28, 28\r\n"));
}

// D03
TEST(RequestHeadParser, RefusesALengthThatIsNoNumber) {
  expect_refused(test_data("framing/empty-length.http"));
  for (const char* value : {"", " ", "+5", "-5", "5 5", "0x5", "5a", "5.0", "5;", "\"5\"", "٥",
                            "18446744073709551616", "99999999999999999999999"}) {
    expect_refused(with("Content-Length: " + std::string(value) + "\r\n"));
  }
  const std::string largest = with("Content-Length: 18446744073709551615\r\n");
  RequestHeadParser parser;
  ASSERT_EQ(parser.parse(largest).status, HeadResult::kDone);
  EXPECT_EQ(parser.head().content_length(), 18446744073709551615ULL);
}

TEST(RequestHeadParser, RefusesEveryCodingButOneChunked) {
  expect_taken(with("Transfer-Encoding: Chunked\r\n"));
  for (const char* value : {"", "identity", "gzip, chunked", "chunked, chunked", "chunked;q=1",
                            "xchunked", "chunked,", "\vchunked"}) {
    expect_refused(with("Transfer-Encoding: " + std::string(value) + "\r\n"));
  }
  expect_refused(with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"));
  expect_refused(with("Transfer-Encoding: chunked\r\n", "POST / HTTP/1.0"));
}

TEST(RequestHeadParser, RefusesLineEndsOtherThanCrlf) {
  expect_refused("GET / HTTP/1.1\nHost: h\r\n\r\n");
  expect_refused("GET / HTTP/1.1\r\nHost: h\n\r\n");
  expect_refused("GET / HTTP/1.1\r\nHost: h\r\n\n");
  expect_refused("GET / HTTP/1.1\r\nHost: h\r\r\n\r\n");
  expect_refused("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n");
  expect_refused("GET / HTTP/1.1\r\nHost: h\r\n\rX");
}

TEST(RequestHeadParser, RefusesHeaderLinesThatCanBeReadInTwoWays) {
  expect_refused(with("Content-Length : 5\r\n"));
  expect_refused(with("X-A: 1\r\n folded\r\n"));
  expect_refused(with("X-A: 1\r\n\tfolded\r\n"));
  expect_refused("GET / HTTP/1.1\r\n Host: h\r\n\r\n");
  expect_refused(with(": nameless\r\n"));
  expect_refused(with("no colon\r\n"));
  expect_refused(with("no-colon\r\n"));
  expect_refused(with("X(A): 1\r\n"));
  expect_refused(with("X\x80: 1\r\n"));
  expect_refused(with(std::string("X\0A: 1\r\n", 8)));
  expect_refused(with(std::string("X: 1\0002\r\n", 8)));
  expect_refused(with("X: \x7f\r\n"));
  expect_refused(with("X: 0123456789\x1b[0m\r\n"));
  expect_taken(with("X: \xc3\xa9\t\xff\r\n"));
}

TEST(RequestHeadParser, EveryByteIsTakenOrRefusedAsTheRfcSays) {
  for (int c = 0; c < 256; ++c) {
    const char byte = static_cast<char>(c);
    if (byte == '\r' || byte == '\n') continue;
    const bool value_ok = (c >= 0x20 && c != 0x7f) || c == '\t';
    for (const std::size_t place : {0U, 3U, 9U}) {  // in the wide steps and in the narrow ones
      std::string value(12, 'v');
      value[place] = byte;
      const HeadResult result = parse(with("X: " + value + "\r\n"));
      EXPECT_EQ(result.status == HeadResult::kDone, value_ok) << c;
    }
    const bool name_ok = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                         (c >= 'a' && c <= 'z') ||
                         (c != 0 && std::string("!#$%&'*+-.^_`|~").find(byte) != std::string::npos);
    if (byte == ':') continue;
    const HeadResult result = parse(with("x" + std::string(1, byte) + "y: 1\r\n"));
    EXPECT_EQ(result.status == HeadResult::kDone, name_ok) << c;
  }
}

TEST(RequestHeadParser, OneHostIsNeededInHttp11) {
  expect_refused("GET / HTTP/1.1\r\n\r\n");
  expect_refused("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n");
  expect_refused("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n");
  expect_refused("GET / HTTP/1.1\r\nHost: a b\r\n\r\n");
  expect_refused("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n");
  expect_refused("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n");
  expect_taken("GET / HTTP/1.1\r\nHost:\r\n\r\n");
  expect_taken("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n");
  expect_taken("GET / HTTP/1.0\r\n\r\n");
}

TEST(RequestHeadParser, RefusesRequestLinesOutOfShape) {
  for (const char* line : {"GET",
                           "GET / HTTP/1.1 ",
                           "GET  / HTTP/1.1",
                           "GET / HTTP/1.1x",
                           " GET / HTTP/1.1",
                           "G(T / HTTP/1.1",
                           "GET / http/1.1",
                           "GET /",
                           "GET / HTTP/1",
                           "GET / HTTP/1.",
                           "GET /a b HTTP/1.1",
                           "GET /#f HTTP/1.1",
                           "GET v1 HTTP/1.1",
                           "GET * HTTP/1.1",
                           "GET ftp://h/ HTTP/1.1",
                           "GET http:///x HTTP/1.1",
                           "GET http://u@h/x HTTP/1.1",
                           "CONNECT h:80 HTTP/1.1",
                           "CONNECT / HTTP/1.1",
                           "\x16\x03\x01",
                           "GET /\x7f HTTP/1.1",
                           "GET /\t HTTP/1.1"}) {
    expect_refused(std::string(line) + "\r\nHost: h\r\n\r\n");
  }
  for (const char* version : {"HTTP/1.10", "HTTP/1.1x", "HTTP/1,1", "HTTP/11", "HTTP/01.1"}) {
    RequestHeadParser parser;
    EXPECT_EQ(parser.parse("GET / " + std::string(version) + "\r\nHost: h\r\n\r\n").reason,
              "not a valid HTTP version")
        << version;
  }
  expect_refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
  expect_refused(with("", std::string(40, 'A') + " / HTTP/1.1"));
}

TEST(RequestHeadParser, AbsoluteTargetsGiveTheirHostAndPath) {
  const std::string bytes = "GET HTTP://other.test:1/v1/models?x HTTP/1.1\r\nHost: h\r\n\r\n";
  RequestHeadParser parser;
  ASSERT_EQ(parser.parse(bytes).status, HeadResult::kDone);
  EXPECT_EQ(parser.head().host(), "other.test:1");
  EXPECT_EQ(parser.head().path(), "/v1/models");
  EXPECT_EQ(parser.head().query(), "?x");
  parser.reset();
  const std::string bare = "GET https://other.test?x=/y HTTP/1.1\r\nHost: h\r\n\r\n";
  ASSERT_EQ(parser.parse(bare).status, HeadResult::kDone);
  EXPECT_EQ(parser.head().path(), "/");
  EXPECT_EQ(parser.head().query(), "?x=/y");
  expect_taken("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n");
}

TEST(RequestHeadParser, KeepAliveFollowsVersionAndConnection) {
  const auto keeps = [](const std::string& bytes) {
    RequestHeadParser parser;
    EXPECT_EQ(parser.parse(bytes).status, HeadResult::kDone);
    return parser.head().keep_alive();
  };
  EXPECT_TRUE(keeps(with("")));
  EXPECT_FALSE(keeps(with("Connection: Close\r\n")));
  EXPECT_FALSE(keeps(with("Connection: keep-alive\r\nConnection: x, close\r\n")));
  EXPECT_FALSE(keeps(with("", "GET / HTTP/1.0")));
  EXPECT_TRUE(keeps(with("Connection: Keep-Alive\r\n", "GET / HTTP/1.0")));
}

TEST(RequestHeadParser, UpgradeNeedsConnectionToNameIt) {
  const auto upgrade = [](const std::string& bytes) {
    RequestHeadParser parser;
    EXPECT_EQ(parser.parse(bytes).status, HeadResult::kDone);
    return std::string(parser.head().upgrade());
  };
  EXPECT_EQ(upgrade(with("Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n")),
            "websocket");
  EXPECT_EQ(upgrade(with("Upgrade: h2c\r\n")), "");
  EXPECT_EQ(upgrade(with("Upgrade: websocket\r\nConnection: upgrade\r\n", "GET / HTTP/1.0")), "");
}

TEST(RequestHeadParser, ExpectContinueIsSeenInHttp11Only) {
  RequestHeadParser parser;
  parser.parse(with("Expect: 100-Continue\r\nContent-Length: 1\r\n"));
  EXPECT_TRUE(parser.head().expect_continue());
  parser.reset();
  parser.parse(with("Expect: 100-continue\r\nContent-Length: 1\r\n", "POST / HTTP/1.0"));
  EXPECT_FALSE(parser.head().expect_continue());
}

// D05
TEST(RequestHeadParser, ConnectionNamesWhatEndsHere) {
  const std::string bytes = test_data("framing/connection-named-header.http");
  RequestHeadParser parser;
  ASSERT_EQ(parser.parse(bytes).status, HeadResult::kDone);
  std::vector<std::string> passes;
  for (std::size_t i = 0; i < parser.head().header_count(); ++i) {
    const Header header = parser.head().header(i);
    if (!parser.head().is_hop_by_hop(header)) passes.emplace_back(header.name);
  }
  EXPECT_THAT(passes, ElementsAre("Host", "X-End-To-End", "Content-Type", "Content-Length"));
}

TEST(RequestHeadParser, ConnectionCannotNameTheFramingAway) {
  const std::string bytes = with("Connection: content-length, host\r\nContent-Length: 3\r\n");
  RequestHeadParser parser;
  ASSERT_EQ(parser.parse(bytes).status, HeadResult::kDone);
  EXPECT_FALSE(parser.head().is_hop_by_hop(parser.head().header(0)));
  EXPECT_FALSE(parser.head().is_hop_by_hop(parser.head().header(2)));
}

TEST(RequestHeadParser, RefusesFloodsOfConnectionOptions) {
  std::string options = "Connection: a";
  for (int i = 0; i < 20; ++i) options += ",a";
  expect_refused(with(options + "\r\n"));
}

TEST(RequestHeadParser, LimitsAreAnsweredWith431) {
  expect_taken(with("X: " + std::string(10'000, 'x') + "\r\n"));  // D09
  expect_refused(with("X: " + std::string(70'000, 'x') + "\r\n"), 431);
  expect_refused("GET /" + std::string(70'000, 'x'), 431);
  expect_refused(with(std::string(300, 'x') + ": 1\r\n"), 431);
  std::string many;
  for (int i = 0; i < 255; ++i) many += "X: 1\r\n";
  expect_taken(with(many));
  expect_refused(with(many + "X: 1\r\n"), 431);

  const std::string bytes = with("");
  RequestHeadParser exact({.max_size = bytes.size(), .max_headers = 1});
  EXPECT_EQ(exact.parse(bytes + "body").status, HeadResult::kDone);
  RequestHeadParser short_of_one({.max_size = bytes.size() - 1, .max_headers = 1});
  EXPECT_EQ(short_of_one.parse(bytes).http_status, 431);
}

// Places in a head are 16-bit numbers: in the largest head all of them are still right.
TEST(RequestHeadParser, TheLargestHeadIsReadToItsLastHeader) {
  std::string start = "GET / HTTP/1.1\r\nHost: h\r\nX-Fill: ";
  const std::string end = "\r\nX-Last: last\r\nX-Empty:\r\n\r\n";
  const std::string bytes =
      start + std::string(kMaxHeadSize - start.size() - end.size(), 'f') + end;
  ASSERT_EQ(bytes.size(), 65'536U);
  const std::string with_body = bytes + "body";
  RequestHeadParser parser;
  const HeadResult result = parser.parse(with_body);
  ASSERT_EQ(result.status, HeadResult::kDone);
  EXPECT_EQ(result.size, bytes.size());
  EXPECT_EQ(parser.head().find("x-last"), "last");
  EXPECT_EQ(parser.head().find("x-empty"), "");
  EXPECT_EQ(parser.head().line(3), "X-Empty:\r\n");
}

// docs/security.md names them.
TEST(RequestHead, NamesThatSteerAreKnownAndTheirNeighboursAreNot) {
  for (const char* name :
       {"x-pointsman-replica", "X-Pointsman-", "x-gateway-destination-endpoint",
        "X-Gateway-Destination-Endpoint-Subset", "x-gateway-destination-endpoint-served",
        "x-gateway-inference-objective", "x-gateway-inference-fairness-id",
        "x-gateway-model-name-rewrite", "x-llm-d-inference-objective", "X-LLM-D-slo-ttft-ms",
        "x-prefiller-host-port", "x-encoder-hosts-ports", "x-data-parallel-host-port",
        "x-kv-cache-source-host-port", "x-smg-target-worker", "X-ENVOY-ORIGINAL-DST-HOST"}) {
    EXPECT_EQ(header_id(name), HeaderId::kSteering) << name;
  }
  for (const char* name :
       {"x-pointsma", "x-pointsman", "x_pointsman-replica", "x-gateway-destination",
        "x-gateway-api", "x-gateway-model-name-rewrites", "x-llm-d", "x-prefiller-host-ports",
        "x-prefill", "x-encoder-hosts-port", "x-data-parallel-rank", "x-kv-cache-source",
        "x-smg-routing-key", "x-envoy-attempt-count", "x-session-id", "x-request-id",
        "x-stainless-lang", "x-api-key"}) {
    EXPECT_NE(header_id(name), HeaderId::kSteering) << name;
  }
}

TEST(RequestHead, HiddenSteeringHeadersAreNotThere) {
  const std::string bytes = "GET / HTTP/1.1\r\nHost: h\r\nX-Pointsman-A: 1\r\nX-B: 2\r\n\r\n";
  RequestHeadParser parser;
  ASSERT_EQ(parser.parse(bytes).status, HeadResult::kDone);
  EXPECT_TRUE(parser.head().steers());
  EXPECT_EQ(parser.head().find("x-pointsman-a"), "1");
  parser.head().hide_steering();
  EXPECT_EQ(parser.head().find("x-pointsman-a"), std::nullopt);
  EXPECT_EQ(parser.head().find("x-b"), "2");
  parser.reset();
  ASSERT_EQ(parser.parse("GET / HTTP/1.1\r\nHost: h\r\n\r\n").status, HeadResult::kDone);
  EXPECT_FALSE(parser.head().steers());
}

TEST(RequestHeadParser, CapturedRequestsAreTaken) {
  for (const char* name : {"vllm/09-chat-stream", "vllm/58-chunked-request", "vllm/59-http10",
                           "vllm/55-expect-100", "llama.cpp/35-head-health"}) {
    expect_taken(test_data(std::string(name) + ".request.http"));
  }
}

TEST(ResponseHeadParser, ReadsAResponse) {
  const std::string bytes = test_data("vllm/09-chat-stream.response.http");
  ResponseHeadParser parser;
  const HeadResult result = parser.parse(bytes);
  ASSERT_EQ(result.status, HeadResult::kDone);
  EXPECT_EQ(result.size, bytes.find("\r\n\r\n") + 4);
  const ResponseHead& head = parser.head();
  EXPECT_EQ(head.status(), 200);
  EXPECT_EQ(head.reason(), "OK");
  EXPECT_TRUE(head.event_stream());
  EXPECT_EQ(head.body_kind("POST"), BodyKind::kChunked);
}

// D07, D08
TEST(ResponseHeadParser, TheEndOfTheBodyFollowsTheRfc) {
  const auto kind = [](const std::string& status, const std::string& lines,
                       std::string_view method) {
    const std::string bytes = "HTTP/1.1 " + status + "\r\n" + lines + "\r\n";
    ResponseHeadParser parser;
    EXPECT_EQ(parser.parse(bytes).status, HeadResult::kDone) << bytes;
    return parser.head().body_kind(method);
  };
  EXPECT_EQ(kind("200 OK", "Content-Length: 10485760\r\n", "HEAD"), BodyKind::kNone);
  EXPECT_EQ(kind("200 OK", "Content-Length: 10485760\r\n", "GET"), BodyKind::kLength);
  EXPECT_EQ(kind("200 OK", "Transfer-Encoding: chunked\r\n", "GET"), BodyKind::kChunked);
  EXPECT_EQ(kind("200 OK", "", "GET"), BodyKind::kUntilClose);
  EXPECT_EQ(kind("204 No Content", "", "GET"), BodyKind::kNone);
  EXPECT_EQ(kind("304 Not Modified", "Content-Length: 5\r\n", "GET"), BodyKind::kNone);
  EXPECT_EQ(kind("100 Continue", "", "POST"), BodyKind::kNone);
  EXPECT_EQ(kind("101 Switching Protocols", "", "GET"), BodyKind::kNone);

  const std::string until_close = test_data("framing/response-until-close.http");
  ResponseHeadParser parser;
  const HeadResult result = parser.parse(until_close);
  ASSERT_EQ(result.status, HeadResult::kDone);
  EXPECT_EQ(parser.head().body_kind("POST"), BodyKind::kUntilClose);
  EXPECT_EQ(until_close.substr(result.size), "{\"id\":\"r1\",\"choices\":[]}");
}

TEST(ResponseHeadParser, ReasonMayBeEmptyOrMissing) {
  for (const char* line : {"HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.0 200 \xc3\xa9 t"}) {
    EXPECT_EQ(parse_response(std::string(line) + "\r\n\r\n").status, HeadResult::kDone) << line;
  }
}

TEST(ResponseHeadParser, RefusesWhatIsAmbiguous) {
  for (const char* head :
       {"HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n", "HTTP/1.1 099 OK\r\n\r\n", "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\n\n", "HTTP/1.1 200 OK\r\nX : 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    EXPECT_EQ(parse_response(head).status, HeadResult::kBad) << head;
  }
}

TEST(ResponseHeadParser, InterimHeadsAreTold) {
  const std::string bytes = test_data("vllm/55-expect-100.response.http");
  ResponseHeadParser parser;
  const HeadResult first = parser.parse(bytes);
  ASSERT_EQ(first.status, HeadResult::kDone);
  EXPECT_EQ(parser.head().status(), 100);
  EXPECT_TRUE(parser.head().interim());
  parser.reset();
  ASSERT_EQ(parser.parse(std::string_view(bytes).substr(first.size)).status, HeadResult::kDone);
  EXPECT_EQ(parser.head().status(), 200);
  EXPECT_FALSE(parser.head().interim());
}

TEST(ResponseHeadParser, CapturedResponsesAreTaken) {
  for (const char* name :
       {"vllm/08-chat", "vllm/35-err-unknown-model", "vllm/59-http10", "llama.cpp/12-chat-stream",
        "llama.cpp/01-get-health", "llama.cpp/35-head-health"}) {
    const HeadResult result = parse_response(test_data(std::string(name) + ".response.http"));
    EXPECT_EQ(result.status, HeadResult::kDone) << name << ": " << result.reason;
  }
}

}  // namespace
}  // namespace pointsman
