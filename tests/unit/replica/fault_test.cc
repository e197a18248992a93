#include "replica/fault.h"

#include <gtest/gtest.h>

namespace pointsman {
namespace {

TEST(ParseFault, ReadsEveryKey) {
  const Result<Fault> fault = parse_fault(R"({"path": "/v1/", "count": 3, "delay_s": 0.5,
    "status": 503, "body": "b", "content_type": "text/plain", "headers": {"Retry-After": "1"},
    "no_content_length": true, "raw": "r", "piece_bytes": 2, "piece_s": 0.1, "before_head": true,
    "after_head": true, "after_events": 4, "in_event": true, "then": "reset"})");
  ASSERT_TRUE(fault) << fault.error().message;
  EXPECT_EQ(fault->path, "/v1/");
  EXPECT_EQ(fault->count, 3U);
  EXPECT_EQ(fault->delay, std::chrono::milliseconds(500));
  EXPECT_EQ(fault->status, 503);
  EXPECT_EQ(fault->after_events, 4U);
  EXPECT_EQ(fault->then, FaultEnd::kReset);
  EXPECT_TRUE(fault->replaces_answer());
}

TEST(ParseFault, RefusesUnknownKeysAndWrongValues) {
  for (const char* json :
       {"", "[]", R"({"stauts": 503})", R"({"status": 99})", R"({"delay_s": -1})",
        R"({"then": "explode"})", R"({"headers": {"a": 1}})", R"({"count": "many"})"}) {
    EXPECT_FALSE(parse_fault(json)) << json;
  }
}

TEST(FaultQueue, CountsPerPathInOrder) {
  FaultQueue queue;
  queue.add({.path = "/v1/chat", .count = 2, .status = 503});
  queue.add({.status = 500});
  EXPECT_EQ(queue.take("/v1/chat/completions")->status, 503);
  EXPECT_EQ(queue.take("/rerank")->status, 500);
  EXPECT_EQ(queue.take("/v1/chat/completions")->status, 503);
  EXPECT_FALSE(queue.take("/v1/chat/completions"));
}

TEST(FaultQueue, CountZeroLasts) {
  FaultQueue queue;
  queue.add({.count = 0, .status = 503});
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(queue.take("/v1/models"));
  queue.clear();
  EXPECT_FALSE(queue.take("/v1/models"));
}

}  // namespace
}  // namespace pointsman
