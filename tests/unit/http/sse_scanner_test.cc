#include "http/sse_scanner.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http/chunk_scanner.h"
#include "support/test_data.h"

namespace pointsman {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

using Events = std::vector<std::pair<std::string, std::string>>;  // name, data

Events scan(const std::vector<std::string>& pieces, std::size_t max = 64) {
  SseScanner scanner(max);
  Events events;
  for (const std::string& piece : pieces) {
    const std::string copy = piece;  // gone before the next piece comes
    scanner.feed(copy, [&](const SseEvent& event) {
      events.emplace_back(std::string(event.name), std::string(event.data));
    });
  }
  return events;
}

std::string payload_of(const std::string& name) {
  const std::string bytes = test_data(name);
  std::string payload;
  ChunkScanner chunks;
  chunks.feed(std::string_view(bytes).substr(bytes.find("\r\n\r\n") + 4),
              [&](std::string_view run) { payload += run; });
  EXPECT_TRUE(chunks.done());
  return payload;
}

// The examples of WHATWG HTML, 9.2.6, and the rules around them.
TEST(SseScanner, FollowsTheStandardsExamples) {
  EXPECT_THAT(scan({"data: YHOO\ndata: +2\ndata: 10\n\n"}), ElementsAre(Pair("", "YHOO\n+2\n10")));
  EXPECT_THAT(
      scan({": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\n"
            "data:  third event\n\n"}),
      ElementsAre(Pair("", "first event"), Pair("", "second event"), Pair("", " third event")));
  EXPECT_THAT(scan({"data\n\ndata\ndata\n\ndata:"}), ElementsAre(Pair("", ""), Pair("", "\n")));
  EXPECT_THAT(scan({"data:test\n\ndata: test\n\n"}),
              ElementsAre(Pair("", "test"), Pair("", "test")));
  EXPECT_THAT(scan({"event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\n"}),
              ElementsAre(Pair("add", "73857293"), Pair("remove", "2153")));
}

TEST(SseScanner, AnyLineEndWillDo) {
  EXPECT_THAT(scan({"data: a\r\n\r\ndata: b\r\rdata: c\n\ndata: d\r\n\n"}),
              ElementsAre(Pair("", "a"), Pair("", "b"), Pair("", "c"), Pair("", "d")));
  EXPECT_THAT(scan({"data: a\r", "\n\r", "\ndata: b\n\r\n"}),
              ElementsAre(Pair("", "a"), Pair("", "b")));
}

TEST(SseScanner, AByteOrderMarkIsSkippedAtTheStartOnly) {
  EXPECT_THAT(scan({"\xef\xbb\xbf"
                    "data: a\n\n"}),
              ElementsAre(Pair("", "a")));
  EXPECT_THAT(scan({"\xef", "\xbb\xbf", "data: a\n\n"}), ElementsAre(Pair("", "a")));
  EXPECT_THAT(scan({"data: a\n\n\xef\xbb\xbf"
                    "data: b\n\n"}),
              ElementsAre(Pair("", "a")));
}

TEST(SseScanner, EventsWithoutDataAreNone) {
  EXPECT_THAT(scan({": ping\n\nretry: 2500\n\nid: 41\n\nevent: note\n\n\n\n"}), IsEmpty());
  EXPECT_THAT(scan({"event: lost\n\ndata: x\n\n"}), ElementsAre(Pair("", "x")));
  EXPECT_THAT(scan({"data: unfinished\n"}), IsEmpty());
}

// D11, D12, D14
TEST(SseScanner, ReadsTheCasesOfPractice) {
  EXPECT_THAT(scan({test_data("streaming/comments.sse")}, 4096),
              ElementsAre(Pair("", testing::HasSubstr("\"one\"")),
                          Pair("", testing::HasSubstr("\"two\"")), Pair("", "[DONE]")));
  EXPECT_THAT(scan({test_data("streaming/meta-only.sse")}, 4096),
              ElementsAre(Pair("", testing::HasSubstr("\"one\"")), Pair("", "[DONE]")));
  EXPECT_THAT(scan({test_data("streaming/named-events.sse")}, 4096),
              ElementsAre(Pair("message_start", testing::_), Pair("ping", "{\"type\":\"ping\"}"),
                          Pair("content_block_delta", testing::HasSubstr("\"hi\"")),
                          Pair("message_stop", testing::_)));
}

TEST(SseScanner, SameEventsForEverySplit) {
  const std::string long_line = "data: " + std::string(80, 'x') + "\n\n";
  const std::vector<std::string> streams = {
      "\xef\xbb\xbf"
      "event: a\r\ndata: 1\r\ndata: 2\r\n\r\n: c\r\rdata\r\n\r\n",
      "data: before\n\n" + long_line + "data: after\n\n",
      "data: 0123456789012345678901234567890123456789\ndata: 0123456789012345678901234567\n\nid: 1",
      test_data("streaming/comments.sse"),
  };
  for (const std::string& stream : streams) {
    const Events whole = scan({stream});
    for (std::size_t a = 0; a <= stream.size(); ++a) {
      for (std::size_t b = a; b <= stream.size(); b += 1 + stream.size() / 50) {
        EXPECT_EQ(scan({stream.substr(0, a), stream.substr(a, b - a), stream.substr(b)}), whole)
            << "cut at " << a << " and " << b;
      }
    }
  }
}

TEST(SseScanner, TooLongEventsArePassedOverAndCounted) {
  SseScanner scanner(64);
  Events events;
  const auto each = [&](const SseEvent& event) { events.emplace_back(event.name, event.data); };
  scanner.feed("data: " + std::string(58, 'x') + "\n\n", each);  // just fits
  EXPECT_EQ(events.size(), 1U);
  scanner.feed("data: " + std::string(59, 'x') + "\ndata: tail\n\n", each);
  for (int i = 0; i < 100; ++i) scanner.feed("data: 1234567890\n", each);
  scanner.feed("\ndata: ok\n\n", each);
  EXPECT_EQ(events.size(), 2U);
  EXPECT_EQ(events.back().second, "ok");
  EXPECT_EQ(scanner.passed_over(), 2U);
}

TEST(SseScanner, TellsWhereAnotherEventMayBePutIn) {
  const std::string stream = "data: a\n\n: c\nevent: x\n\n";
  SseScanner scanner;
  std::vector<std::size_t> boundaries;
  for (std::size_t i = 0; i <= stream.size(); ++i) {
    if (scanner.at_event_boundary()) boundaries.push_back(i);
    if (i < stream.size()) scanner.feed(stream.substr(i, 1), [](const SseEvent&) {});
  }
  EXPECT_THAT(boundaries, ElementsAre(0, 9, 13, 23));
}

TEST(SseScanner, CapturedStreamsEndWithDone) {
  for (const char* name :
       {"vllm/09-chat-stream", "llama.cpp/12-chat-stream", "vllm/56-unicode-stream",
        "llama.cpp/39-unicode-stream", "vllm/21-completion-stream-usage"}) {
    const Events events = scan({payload_of(std::string(name) + ".response.http")}, 65536);
    ASSERT_GT(events.size(), 3U) << name;
    EXPECT_EQ(events.back().second, "[DONE]");
    for (const auto& [event, data] : events) {
      EXPECT_EQ(event, "");
      EXPECT_TRUE(data == "[DONE]" || (data.starts_with('{') && data.ends_with('}'))) << data;
    }
  }
}

}  // namespace
}  // namespace pointsman
