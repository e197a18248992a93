#include "http/http2_head.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "http/head_parser.h"

namespace pointsman {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

const Fields kGet = {
    {":method", "GET"}, {":scheme", "https"}, {":authority", "a.test"}, {":path", "/v1/x?y=z"}};

Fields with(Fields fields, const Fields& more) {
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

// Empty where it is malformed.
std::string made(const Fields& fields, bool ended = true, std::size_t max_size = 32 * 1024) {
  Http2Head head(max_size);
  head.start();
  for (const auto& [name, value] : fields) {
    if (!head.add(name, value)) return {};
  }
  std::string out;
  static_cast<void>(head.finish(ended, out));
  return out;
}

int parsed(const std::string& head, std::size_t max_size = 32 * 1024) {
  RequestHeadParser parser(HeadLimits{max_size, 128});
  const HeadResult result = parser.parse(head);
  return result.status == HeadResult::kDone ? 200 : result.http_status;
}

TEST(Http2Head, PseudoHeadersBecomeTheRequestLineAndHost) {
  EXPECT_EQ(made(with(kGet, {{"accept", "*/*"}, {"x-a", "b c"}})),
            "GET /v1/x?y=z HTTP/1.1\r\nhost: a.test\r\naccept: */*\r\nx-a: b c\r\n\r\n");
}

TEST(Http2Head, TheBodyIsFramedByItsLengthOrInChunks) {
  EXPECT_EQ(made(with(kGet, {{"content-length", "5"}}), false),
            "GET /v1/x?y=z HTTP/1.1\r\nhost: a.test\r\ncontent-length: 5\r\n\r\n");
  EXPECT_EQ(made(kGet, false),
            "GET /v1/x?y=z HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\n");
}

TEST(Http2Head, CookieCrumbsAreJoinedInTheirOrder) {
  EXPECT_EQ(made(with(kGet, {{"cookie", "a=1"}, {"x", "y"}, {"cookie", "b=2"}})),
            "GET /v1/x?y=z HTTP/1.1\r\nhost: a.test\r\nx: y\r\ncookie: a=1; b=2\r\n\r\n");
}

TEST(Http2Head, AHostThatDiffersFromTheAuthorityIsLeftToTheParserToRefuse) {
  EXPECT_EQ(made(with(kGet, {{"host", "A.TEST"}})), made(kGet));
  EXPECT_EQ(parsed(made(with(kGet, {{"host", "b.test"}}))), 400);
  Fields host_alone = with(kGet, {{"host", "b.test"}});
  host_alone.erase(host_alone.begin() + 2);
  EXPECT_EQ(parsed(made(host_alone)), 200);
}

TEST(Http2Head, WhatIsMalformedIsNotMade) {
  const std::vector<Fields> refused = {{{"connection", "close"}},
                                       {{"keep-alive", "5"}},
                                       {{"proxy-connection", "close"}},
                                       {{"transfer-encoding", "chunked"}},
                                       {{"upgrade", "h2c"}},
                                       {{"te", "gzip"}},
                                       {{"X-Upper", "a"}},
                                       {{"", "a"}},
                                       {{"a b", "c"}},
                                       {{"a:b", "c"}},
                                       {{"a", "b\r\nc: d"}},
                                       {{"a", "b\n"}},
                                       {{"a", std::string("b\0c", 3)}},
                                       {{":method", "POST"}},
                                       {{":path", "/again"}},
                                       {{":status", "200"}},
                                       {{"x", "y"}, {":scheme", "http"}}};
  for (const Fields& fields : refused) {
    EXPECT_EQ(made(with(kGet, fields)), "") << fields.back().first;
  }
  for (std::size_t missing : {0, 1, 3}) {
    Fields fields = kGet;
    fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(missing));
    EXPECT_EQ(made(fields), "") << missing;
  }
  for (const char* path : {"v1/x", "http://a.test/v1/x", "/v1/x y", "/v1\t", ""}) {
    Fields fields = kGet;
    fields[3].second = path;
    EXPECT_EQ(made(fields), "") << path;
  }
}

TEST(Http2Head, NoFieldCanMakeASecondRequestOfOne) {
  Fields fields = kGet;
  fields[0].second = "GET /evil HTTP/1.1\r\nhost: b";
  EXPECT_EQ(made(fields), "");
  fields = kGet;
  fields[2].second = "a.test\r\nx: y";
  EXPECT_EQ(made(fields), "");
}

TEST(Http2Head, AHeadThatIsTooLargeIsSoForTheParserToo) {
  const std::size_t most = 1000;
  const std::string text(5000, 'a');
  Fields long_path = kGet;
  long_path[3].second = "/" + text;
  Fields long_host = kGet;
  long_host[2].second = text;
  Fields crumbs = kGet;
  for (int i = 0; i < 50; ++i) crumbs.emplace_back("cookie", std::string(100, 'c'));
  Fields lines = kGet;
  for (int i = 0; i < 500; ++i) lines.emplace_back("x", std::string(90, 'c'));
  for (const Fields& fields : {long_path, long_host, crumbs, lines, with(kGet, {{"x", text}}),
                               with(kGet, {{"cookie", text}})}) {
    const std::string head = made(fields, true, most);
    EXPECT_EQ(parsed(head, most), 431);
    EXPECT_LT(head.size(), 5 * most);
  }
}

TEST(Http2Head, TrailersAreLinesWithoutPseudoHeaders) {
  Http2Head head(1000);
  head.start_trailers();
  EXPECT_TRUE(head.add("x-a", "1"));
  EXPECT_TRUE(head.add("x-b", "2"));
  EXPECT_EQ(head.trailers(), "x-a: 1\r\nx-b: 2\r\n");
  EXPECT_FALSE(head.add(":path", "/"));
  EXPECT_FALSE(head.add("transfer-encoding", "chunked"));
}

TEST(Http2Head, ItsSizeIsCountedAsSettingsDo) {
  Http2Head head(10);
  head.start();
  EXPECT_TRUE(head.add(":method", "GET"));
  EXPECT_TRUE(head.add("x", std::string(100, 'a')));
  EXPECT_EQ(head.list_size(), 7U + 3U + 32U + 1U + 100U + 32U);
  EXPECT_EQ(head.field_count(), 2U);
}

}  // namespace
}  // namespace pointsman
