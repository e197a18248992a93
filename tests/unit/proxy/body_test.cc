// The framing of bodies in both directions.

#include <string>

#include <gtest/gtest.h>

#include "http/head_parser.h"
#include "proxy/request_body.h"
#include "proxy/response_body.h"

namespace pointsman {
namespace {

using Progress = RequestBody::Progress;

class RequestBodyTest : public ::testing::Test {
 protected:
  void start(const std::string& framing) {
    parser_.reset();
    text_ = "POST /v1/x HTTP/1.1\r\nHost: a\r\n" + framing + "\r\n\r\n";
    ASSERT_EQ(parser_.parse(text_).status, HeadResult::kDone);
    body_.start(parser_.head());
  }
  // Feeds all of `bytes` in pieces, as a connection with room for `room` bytes would.
  Progress feed(const std::string& bytes, std::size_t room, std::size_t piece) {
    std::size_t at = 0;
    Progress progress = Progress::kNeedMore;
    while (progress == Progress::kNeedMore && at < bytes.size()) {
      if (!body_.moved()) {
        const std::size_t count = std::min({piece, bytes.size() - at, room - in_.size()});
        in_ += bytes.substr(at, count);
        at += count;
        progress = body_.advance_in_place(in_, room - in_.size());
      } else {
        const std::size_t count = std::min({piece, bytes.size() - at, body_.room()});
        std::memcpy(body_.tail(), bytes.data() + at, count);
        at += count;
        progress = body_.advance_moved(count);
      }
    }
    return progress;
  }

  BodyMemory memory_{std::size_t{10} << 20};
  Gauge held_;
  BodyBlocks blocks_{memory_, held_};
  RequestBody body_{blocks_, std::size_t{1} << 20};
  RequestHeadParser parser_;
  std::string text_;
  std::string in_;
};

TEST_F(RequestBodyTest, ASmallBodyStaysWhereItIs) {
  start("Content-Length: 5");
  EXPECT_EQ(feed("helloGET /", 100, 3), Progress::kComplete);
  EXPECT_FALSE(body_.moved());
  EXPECT_EQ(body_.raw(in_), "hello");
  EXPECT_EQ(memory_.used(), 0);
}

TEST_F(RequestBodyTest, ALargeBodyMovesAndStaysWhole) {
  std::string large(900'000, 'x');
  for (std::size_t i = 0; i < large.size(); i += 1000) large[i] = static_cast<char>('a' + i % 23);
  start("Content-Length: 900000");
  EXPECT_EQ(feed(large, 16'384, 7'000), Progress::kComplete);
  EXPECT_TRUE(body_.moved());
  EXPECT_TRUE(body_.held());
  EXPECT_EQ(body_.raw(in_), large);
  EXPECT_GE(memory_.used(), large.size());
  EXPECT_EQ(held_.value(), static_cast<std::int64_t>(memory_.used()));
  body_.reset();
  EXPECT_EQ(memory_.used(), 0);
  EXPECT_EQ(held_.value(), 0);
}

// RFC 9110, 6.5.1.
TEST_F(RequestBodyTest, ATrailerThatBelongsInTheHeadIsBad) {
  for (const char* name : {"Content-Length", "transfer-encoding", "HOST", "Connection", "TE",
                           "Trailer", "Authorization", "Proxy-Authorization", "Content-Type"}) {
    start("Transfer-Encoding: chunked");
    in_.clear();
    EXPECT_EQ(feed("1\r\na\r\n0\r\nX-Sum: 1\r\n" + std::string(name) + ": 5\r\n\r\n", 100, 7),
              Progress::kBad)
        << name;
    EXPECT_EQ(body_.problem(), "a trailer that may stand in the head only");
    parser_.reset();
  }
  for (const char* name : {"X-Host", "Hos", "Hosts", "Content-Digest", "Server-Timing",
                           "Proxy-Authorization-X", "x-very-long-name-of-a-trailer-host"}) {
    start("Transfer-Encoding: chunked");
    in_.clear();
    EXPECT_EQ(feed("1\r\na\r\n0\r\n" + std::string(name) + ": 5\r\n\r\n", 100, 7),
              Progress::kComplete)
        << name;
    parser_.reset();
  }
}

TEST_F(RequestBodyTest, AChunkedBodyKeepsItsFramingAndShowsItsData) {
  start("Transfer-Encoding: chunked");
  std::string framed;
  std::string data;
  for (int i = 0; i < 3000; ++i) {
    framed += "b;x=y\r\nhello world\r\n";
    data += "hello world";
  }
  framed += "0\r\nX-Trailer: yes\r\n\r\n";
  EXPECT_EQ(feed(framed, 16'384, 999), Progress::kComplete);
  EXPECT_EQ(body_.raw(in_), framed);
  std::string scratch;
  EXPECT_EQ(body_.payload(in_, scratch), data);
  EXPECT_EQ(body_.payload_bytes(), data.size());
}

TEST_F(RequestBodyTest, WhatComesBehindAMovedBodyIsExcess) {
  start("Transfer-Encoding: chunked");
  const std::string chunk = "4000\r\n" + std::string(0x4000, 'x') + "\r\n";
  EXPECT_EQ(feed(chunk + chunk + "0\r\n\r\nGET /", 8'192, 100'000), Progress::kComplete);
  EXPECT_EQ(body_.excess(), "GET /");
}

TEST_F(RequestBodyTest, ABodyOverTheLimitIsNotHeld) {
  start("Content-Length: 2000000");
  EXPECT_EQ(feed(std::string(20'000, 'x'), 16'384, 20'000), Progress::kTooLarge);
  EXPECT_FALSE(body_.held());
  EXPECT_EQ(body_.raw(in_).size(), 16'384);
  EXPECT_EQ(memory_.used(), 0);
}

TEST_F(RequestBodyTest, AChunkedBodyOverTheLimitIsNotHeldEither) {
  start("Transfer-Encoding: chunked");
  std::string framed;
  while (framed.size() < 3'000'000) framed += "1000\r\n" + std::string(4096, 'x') + "\r\n";
  EXPECT_EQ(feed(framed, 16'384, 64'000), Progress::kTooLarge);
  EXPECT_FALSE(body_.held());
  EXPECT_LT(memory_.used(), 5'000'000);
}

TEST_F(RequestBodyTest, WithoutMemoryForItABodyStreamsThrough) {
  BodyMemory little(100'000);
  BodyBlocks blocks(little, held_);
  RequestBody body(blocks, std::size_t{1} << 20);
  start("Content-Length: 500000");
  body.start(parser_.head());
  const std::string first(16'384, 'x');
  EXPECT_EQ(body.advance_in_place(first, 0), Progress::kTooLarge);
  EXPECT_EQ(little.used(), 0);
}

TEST_F(RequestBodyTest, ABlockThatWasGivenBackServesTheNextBodyAndTakesNothingBehindIt) {
  start("Content-Length: 900000");
  EXPECT_EQ(feed(std::string(900'000, 'x'), 16'384, 64'000), Progress::kComplete);
  const char* const block = body_.raw(in_).data();
  body_.reset();
  EXPECT_EQ(memory_.used(), 0);
  in_.clear();
  start("Content-Length: 300000");
  const std::string next = std::string(300'000, 'y') + "GET /";
  EXPECT_EQ(feed(next, 16'384, 64'000), Progress::kComplete);
  EXPECT_EQ(body_.raw(in_).data(), block);
  EXPECT_EQ(body_.raw(in_), next.substr(0, 300'000));
  EXPECT_TRUE(body_.excess().empty());
  // What a body has the use of counts whole.
  EXPECT_GE(memory_.used(), 900'000);
  EXPECT_EQ(held_.value(), static_cast<std::int64_t>(memory_.used()));
}

TEST_F(RequestBodyTest, SpareBlocksAreBoundedAndGoWhenNobodyTakesThem) {
  std::vector<BodyBlocks::Block> blocks(10);
  for (BodyBlocks::Block& block : blocks) {
    ASSERT_TRUE(blocks_.grow(block, BodyBlocks::kLargestSpare));
  }
  EXPECT_EQ(memory_.used(), 10 * BodyBlocks::kLargestSpare);
  for (BodyBlocks::Block& block : blocks) blocks_.give_back(block);
  EXPECT_EQ(memory_.used(), 0);
  EXPECT_EQ(blocks_.spare_bytes(), BodyBlocks::kMaxSpare);
  BodyBlocks::Block taken;
  ASSERT_TRUE(blocks_.grow(taken, 1));
  blocks_.give_back(taken);
  blocks_.age();
  EXPECT_EQ(blocks_.spare_bytes(), BodyBlocks::kMaxSpare);
  blocks_.age();
  EXPECT_EQ(blocks_.spare_bytes(), 0);
}

TEST_F(RequestBodyTest, BrokenChunksAreBad) {
  start("Transfer-Encoding: chunked");
  EXPECT_EQ(feed("1c-and-more\r\n", 100, 100), Progress::kBad);
}

class ResponseBodyTest : public ::testing::Test {
 protected:
  // What the client gets, in pieces of `piece` bytes.
  std::string take(const std::string& in, std::size_t piece) {
    std::string out;
    for (std::size_t at = 0; at < in.size() && !body_.done() && !body_.bad(); at += piece) {
      out += body_
                 .take(std::string_view(in).substr(at, piece), scratch_,
                       [this](std::string_view data) { data_ += data; })
                 .forward;
    }
    return out;
  }
  ResponseBody body_;
  std::string scratch_;
  std::string data_;
};

TEST_F(ResponseBodyTest, ChunkFramingIsFollowedAndNotRebuilt) {
  const std::string framed = "5;ext=1\r\nhello\r\n006\r\n world\r\n0\r\nX-T: 1\r\n\r\n";
  for (std::size_t piece = 1; piece <= framed.size(); ++piece) {
    data_.clear();
    body_.start(BodyKind::kChunked, 0, false);
    EXPECT_EQ(take(framed, piece), framed) << piece;
    EXPECT_EQ(data_, "hello world");
    EXPECT_TRUE(body_.done());
  }
}

TEST_F(ResponseBodyTest, AClientOfHttp10GetsTheDataAlone) {
  const std::string framed = "5;ext=1\r\nhello\r\n006\r\n world\r\n0\r\nX-T: 1\r\n\r\n";
  for (std::size_t piece = 1; piece <= framed.size(); ++piece) {
    body_.start(BodyKind::kChunked, 0, true);
    EXPECT_EQ(take(framed, piece), "hello world") << piece;
    EXPECT_TRUE(body_.done());
  }
}

TEST_F(ResponseBodyTest, ALengthEndsWhereItSays) {
  body_.start(BodyKind::kLength, 5, false);
  const ResponseBody::Taken taken = body_.take("helloHTTP", scratch_, [](std::string_view) {});
  EXPECT_EQ(taken.forward, "hello");
  EXPECT_EQ(taken.consumed, 5);
  EXPECT_TRUE(body_.done());
  EXPECT_FALSE(body_.may_insert());
}

TEST_F(ResponseBodyTest, ACloseIsTheEndOnlyWhereNothingElseSaysIt) {
  body_.start(BodyKind::kUntilClose, 0, false);
  take("abc", 1);
  EXPECT_TRUE(body_.complete_at_close());
  EXPECT_TRUE(body_.may_insert());
  body_.start(BodyKind::kLength, 5, false);
  take("abc", 1);
  EXPECT_FALSE(body_.complete_at_close());
  body_.start(BodyKind::kChunked, 0, false);
  take("3\r\nabc\r\n", 1);
  EXPECT_FALSE(body_.complete_at_close());
  EXPECT_TRUE(body_.may_insert());
  take("3\r\na", 1);
  EXPECT_FALSE(body_.may_insert());
}

}  // namespace
}  // namespace pointsman
