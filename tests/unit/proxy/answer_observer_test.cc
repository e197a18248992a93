#include "proxy/answer_observer.h"

#include <string>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

constexpr bool kStream = true;
constexpr bool kWhole = false;
constexpr bool kCompressed = true;
constexpr bool kPlainText = false;

class AnswerObserverTest : public testing::Test {
 protected:
  void start(Api api, bool event_stream, bool compressed) {
    observer_.start(api, event_stream, compressed);
  }
  // Whether the first token is known once these bytes have come too.
  bool token_after(std::string_view bytes) {
    observer_.take(bytes, reader_);
    return observer_.first_token();
  }

  AnswerReader reader_;
  AnswerObserver observer_;
};

TEST_F(AnswerObserverTest, AStreamsFirstTokenIsItsFirstEventWithOutput) {
  start(Api::kChat, kStream, kPlainText);
  EXPECT_FALSE(token_after(": a comment\n\n"));
  EXPECT_FALSE(token_after("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n"));
  EXPECT_FALSE(token_after("data: {\"choices\":[]}\n\n"));
  EXPECT_FALSE(token_after("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n"))
      << "the event has not ended";
  EXPECT_TRUE(token_after("\n"));
}

TEST_F(AnswerObserverTest, OfAnUnknownPathTheFirstByteIsTheFirstToken) {
  for (const bool event_stream : {kStream, kWhole}) {
    start(Api::kOther, event_stream, kPlainText);
    EXPECT_FALSE(observer_.first_token());
    EXPECT_TRUE(token_after("d"));
  }
}

TEST_F(AnswerObserverTest, OfACompressedBodyTheFirstByteIsTheFirstToken) {
  for (const Api api : {Api::kChat, Api::kResponses, Api::kMessages, Api::kOther}) {
    for (const bool event_stream : {kStream, kWhole}) {
      start(api, event_stream, kCompressed);
      EXPECT_FALSE(observer_.first_token());
      EXPECT_TRUE(token_after("\x1f"));
      EXPECT_FALSE(observer_.may_insert_event()) << "nothing can be put into such a body";
    }
  }
}

TEST_F(AnswerObserverTest, APlainAnswerShowsNoFirstToken) {
  start(Api::kChat, kWhole, kPlainText);
  EXPECT_FALSE(token_after(R"({"choices":[{"message":{"content":"a"}}],"usage":)"));
  EXPECT_FALSE(token_after(
      R"({"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":4}}})"));
  observer_.end(reader_);
  EXPECT_FALSE(observer_.first_token());
  EXPECT_EQ(observer_.prompt_tokens(), 9U);
  EXPECT_EQ(observer_.cached_tokens(), 4U);
  EXPECT_EQ(observer_.output_tokens(), 1U);
}

TEST_F(AnswerObserverTest, NothingIsLeftOfTheAnswerBefore) {
  start(Api::kOther, kStream, kPlainText);
  EXPECT_TRUE(token_after("data: {\"usage\":{\"prompt_tokens\":9}}\n\ndata: {\"cho"));
  start(Api::kChat, kStream, kPlainText);
  EXPECT_FALSE(token_after("ices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"));
  EXPECT_EQ(observer_.prompt_tokens(), std::nullopt);
}

}  // namespace
}  // namespace pointsman
