#include "http/head_writer.h"

#include <string>

#include <gtest/gtest.h>

#include "http/head_parser.h"
#include "support/test_data.h"

namespace pointsman {
namespace {

std::string upstream(const std::string& bytes, const UpstreamRequest& request) {
  RequestHeadParser parser;
  EXPECT_EQ(parser.parse(bytes).status, HeadResult::kDone) << bytes;
  std::string out;
  write_request_head(parser.head(), request, out);
  return out;
}

struct Written {
  std::string head;
  bool stays_open;
};

Written to_client(const std::string& bytes, ClientResponse response,
                  std::string_view method = "POST") {
  ResponseHeadParser parser;
  EXPECT_EQ(parser.parse(bytes).status, HeadResult::kDone) << bytes;
  response.body = parser.head().body_kind(method);
  Written written;
  written.stays_open = write_response_head(parser.head(), response, written.head);
  return written;
}

const UpstreamRequest kPlain{
    .authority = "10.0.0.1:8000", .path_prefix = "", .request_id = "id-1", .authorization = ""};

// D05
TEST(WriteRequestHead, HopByHopHeadersEndHere) {
  EXPECT_EQ(upstream(test_data("framing/connection-named-header.http"), kPlain),
            "POST /v1/chat/completions HTTP/1.1\r\nHost: 10.0.0.1:8000\r\nX-End-To-End: 2\r\n"
            "Content-Type: application/json\r\nContent-Length: 28\r\nX-Request-Id: id-1\r\n\r\n");
  EXPECT_EQ(upstream("GET /v1/models HTTP/1.1\r\nTE: trailers\r\nHost: h\r\nKeep-Alive: 5\r\n"
                     "X-A:  spelt As\tis \r\nProxy-Authorization: x\r\nProxy-Connection: close\r\n"
                     "Upgrade: h2c\r\nConnection: upgrade, close\r\nx-b: 2\r\n\r\n",
                     kPlain),
            "GET /v1/models HTTP/1.1\r\nHost: 10.0.0.1:8000\r\nX-A:  spelt As\tis \r\nx-b: 2\r\n"
            "X-Request-Id: id-1\r\n\r\n");
}

TEST(WriteRequestHead, PrefixPathAndQuerySurvive) {
  UpstreamRequest request = kPlain;
  request.path_prefix = "/base";
  EXPECT_TRUE(upstream("GET http://h/v1/models?a=%2F&b HTTP/1.1\r\nHost: h\r\n\r\n", request)
                  .starts_with("GET /base/v1/models?a=%2F&b HTTP/1.1\r\nHost: 10.0.0.1:8000\r\n"));
  EXPECT_TRUE(upstream("GET http://h?x HTTP/1.1\r\nHost: h\r\n\r\n", request)
                  .starts_with("GET /base/?x HTTP/1.1\r\n"));
}

TEST(WriteRequestHead, TheClientsFramingIsKept) {
  EXPECT_NE(upstream("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", kPlain)
                .find("\r\nTransfer-Encoding: chunked\r\n"),
            std::string::npos);
  EXPECT_NE(upstream("POST / HTTP/1.1\r\nHost: h\r\nConnection: content-length\r\n"
                     "Content-Length: 7\r\n\r\n",
                     kPlain)
                .find("\r\nContent-Length: 7\r\n"),
            std::string::npos);
}

TEST(WriteRequestHead, TheRequestIdOfTheClientWins) {
  const std::string out =
      upstream("GET / HTTP/1.1\r\nHost: h\r\nx-request-id: mine\r\n\r\n", kPlain);
  EXPECT_NE(out.find("x-request-id: mine\r\n"), std::string::npos);
  EXPECT_EQ(out.find("id-1"), std::string::npos);
  EXPECT_EQ(upstream("GET / HTTP/1.1\r\nHost: h\r\nX-Request-Id:\r\n\r\n", kPlain),
            "GET / HTTP/1.1\r\nHost: 10.0.0.1:8000\r\nX-Request-Id: id-1\r\n\r\n");
}

TEST(WriteRequestHead, AConfiguredKeyReplacesTheClients) {
  const std::string bytes = "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer c\r\n\r\n";
  EXPECT_NE(upstream(bytes, kPlain).find("Authorization: Bearer c\r\n"), std::string::npos);
  UpstreamRequest request = kPlain;
  request.authorization = "Bearer r";
  const std::string out = upstream(bytes, request);
  EXPECT_NE(out.find("Authorization: Bearer r\r\n"), std::string::npos);
  EXPECT_EQ(out.find("Bearer c"), std::string::npos);
}

TEST(WriteRequestHead, ExpectContinueIsAnsweredHere) {
  EXPECT_EQ(upstream("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n"
                     "\r\n",
                     kPlain)
                .find("Expect"),
            std::string::npos);
}

// D57
TEST(WriteRequestHead, WebsocketUpgradesAreAskedForAgain) {
  EXPECT_EQ(upstream("GET /v1/realtime HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\n"
                     "Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n",
                     kPlain),
            "GET /v1/realtime HTTP/1.1\r\nHost: 10.0.0.1:8000\r\nSec-WebSocket-Key: k\r\n"
            "X-Request-Id: id-1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
}

TEST(WriteRequestHead, WhatIsWrittenIsReadBackTheSame) {
  const std::string out = upstream(test_data("vllm/09-chat-stream.request.http"), kPlain);
  RequestHeadParser parser;
  ASSERT_EQ(parser.parse(out).status, HeadResult::kDone);
  EXPECT_EQ(parser.head().host(), "10.0.0.1:8000");
  EXPECT_EQ(parser.head().request_id(), "id-1");
}

TEST(WriteResponseHead, ChunkedBodiesStayChunkedInHttp11) {
  const Written written = to_client(
      "HTTP/1.1 200 OK\r\nServer: s\r\nConnection: x-hop, close\r\nX-Hop: 1\r\n"
      "Transfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n",
      {.request_id = "id-1", .extra = ""});
  EXPECT_EQ(written.head,
            "HTTP/1.1 200 OK\r\nServer: s\r\nContent-Type: text/event-stream\r\n"
            "Transfer-Encoding: chunked\r\nX-Request-Id: id-1\r\n\r\n");
  EXPECT_TRUE(written.stays_open);
}

TEST(WriteResponseHead, Http10ClientsGetABodyThatEndsWithTheConnection) {
  const Written chunked = to_client("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                                    {.request_id = "", .http10 = true, .extra = ""});
  EXPECT_EQ(chunked.head, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
  EXPECT_FALSE(chunked.stays_open);
  const Written length = to_client("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
                                   {.request_id = "", .http10 = true, .extra = ""});
  EXPECT_EQ(length.head, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_TRUE(length.stays_open);
}

// D07
TEST(WriteResponseHead, ABodyUntilCloseAnnouncesTheClose) {
  const Written written = to_client(test_data("framing/response-until-close.http"),
                                    {.request_id = "r", .extra = "X-More: 1\r\n"});
  EXPECT_EQ(written.head,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Request-Id: r\r\n"
            "X-More: 1\r\nConnection: close\r\n\r\n");
  EXPECT_FALSE(written.stays_open);
}

// D08
TEST(WriteResponseHead, AnswersToHeadKeepTheirLengthAndTheConnection) {
  const Written written = to_client("HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n",
                                    {.request_id = "", .extra = ""}, "HEAD");
  EXPECT_EQ(written.head, "HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n");
  EXPECT_TRUE(written.stays_open);
}

TEST(WriteResponseHead, TheRequestsIdReplacesTheReplicas) {
  const Written written = to_client("HTTP/1.1 204 No Content\r\nX-Request-Id: theirs\r\n\r\n",
                                    {.request_id = "ours", .keep_alive = false, .extra = ""});
  EXPECT_EQ(written.head,
            "HTTP/1.1 204 No Content\r\nX-Request-Id: ours\r\nConnection: close\r\n\r\n");
}

// D57
TEST(WriteResponseHead, SwitchingProtocolsKeepsItsHeaders) {
  const Written written = to_client(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Accept: a\r\n\r\n",
      {.request_id = "", .extra = ""}, "GET");
  EXPECT_EQ(written.head,
            "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: a\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
}

TEST(AppendChunk, FramesAPayload) {
  std::string out;
  append_chunk(out, std::string(26, 'a'));
  append_chunk(out, "");
  EXPECT_EQ(out, "1a\r\n" + std::string(26, 'a') + "\r\n");
}

}  // namespace
}  // namespace pointsman
