#include "features/answer_reader.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "features/session_key.h"
#include "support/test_data.h"

namespace pointsman {
namespace {

bool is_token(Api api, std::string_view data, std::string_view name = "") {
  AnswerReader reader;
  AnswerFacts facts;
  reader.event(api, name, data, facts);
  return facts.first_token;
}

// The data lines of a captured stream, in which no event is cut.
std::vector<std::string> events_of(const std::string& name) {
  const std::string bytes = test_data(name);
  std::vector<std::string> events;
  std::size_t at = 0;
  while ((at = bytes.find("\ndata: ", at)) != std::string::npos) {
    at += 7;
    events.push_back(bytes.substr(at, bytes.find('\n', at) - at));
  }
  return events;
}

struct Stream {
  std::size_t token_at = 0;  // index of the event with the first token
  AnswerFacts facts;
};

Stream run(Api api, const std::string& name) {
  AnswerReader reader;
  Stream stream;
  std::size_t index = 0;
  for (const std::string& data : events_of(name)) {
    const bool before = stream.facts.first_token;
    reader.event(api, "", data, stream.facts);
    if (!before && stream.facts.first_token) stream.token_at = index;
    ++index;
  }
  EXPECT_TRUE(stream.facts.first_token) << name;
  return stream;
}

TEST(FirstToken, ChatNeedsAFilledFieldBesidesTheRole) {
  const auto delta = [](const std::string& fields) {
    return is_token(Api::kChat, R"({"choices":[{"index":0,"delta":)" + fields + "}]}");
  };
  EXPECT_FALSE(delta(R"({"role":"assistant"})"));
  EXPECT_FALSE(delta(R"({"role":"assistant","content":""})"));
  EXPECT_FALSE(delta(R"({"role":"assistant","content":null})"));
  EXPECT_FALSE(delta(R"({"role":"assistant","content":"","tool_calls":[],"refusal":null})"));
  EXPECT_FALSE(delta("{}"));
  EXPECT_FALSE(delta(R"({"content":null})"));
  EXPECT_TRUE(delta(R"({"content":""})"));  // half a character
  EXPECT_TRUE(delta(R"({"content":"x"})"));
  EXPECT_TRUE(delta(R"({"role":"assistant","content":"x"})"));
  EXPECT_TRUE(delta(R"({"reasoning_content":"x"})"));
  EXPECT_FALSE(delta(R"({"reasoning_content":"","role":"assistant","content":""})"));
  EXPECT_TRUE(delta(R"({"role":"assistant","tool_calls":[{"index":0}]})"));
  EXPECT_TRUE(delta(R"({"refusal":"no"})"));
}

TEST(FirstToken, ChatLooksAtEveryChoice) {
  EXPECT_TRUE(is_token(Api::kChat, R"({"choices":[{"delta":{}},{"delta":{"content":"x"}}]})"));
  EXPECT_FALSE(is_token(Api::kChat, R"({"choices":[]})"));
  EXPECT_FALSE(is_token(Api::kChat, R"({"choices":[],"usage":{"prompt_tokens":1}})"));
  EXPECT_FALSE(is_token(Api::kChat, R"({"error":{"message":"content"}})"));
  EXPECT_FALSE(is_token(Api::kChat, R"({"choices":null})"));
  EXPECT_FALSE(is_token(Api::kChat, "[DONE]"));
  EXPECT_FALSE(is_token(Api::kChat, ""));
  EXPECT_FALSE(is_token(Api::kChat, R"({"choices":[{"delta":{"content)"));
}

TEST(FirstToken, CompletionsNeedAnyChoice) {
  EXPECT_TRUE(is_token(Api::kCompletions, R"({"choices":[{"text":""}]})"));
  EXPECT_FALSE(is_token(Api::kCompletions, R"({"choices":[]})"));
  EXPECT_FALSE(is_token(Api::kCompletions, "[DONE]"));
}

TEST(FirstToken, ResponsesBeginWithTheFirstDelta) {
  for (const char* type : {"response.created", "response.in_progress", "response.output_item.added",
                           "response.content_part.added", "ping", "error"}) {
    EXPECT_FALSE(is_token(Api::kResponses, R"({"type":")" + std::string(type) + "\"}", type));
    EXPECT_FALSE(is_token(Api::kResponses, R"({"type":")" + std::string(type) + "\"}"));
  }
  for (const char* type : {"response.output_text.delta", "response.reasoning_text.delta",
                           "response.function_call_arguments.delta"}) {
    EXPECT_TRUE(is_token(Api::kResponses, R"({"delta":"x"})", type));
    EXPECT_TRUE(is_token(Api::kResponses, R"({"type":")" + std::string(type) + "\"}"));
  }
}

// D14
TEST(FirstToken, MessagesBeginWithTheFirstContentBlock) {
  EXPECT_FALSE(is_token(Api::kMessages, R"({"type":"message_start"})", "message_start"));
  EXPECT_FALSE(is_token(Api::kMessages, R"({"type":"ping"})", "ping"));
  EXPECT_TRUE(is_token(Api::kMessages, R"({"type":"content_block_start"})", "content_block_start"));
  EXPECT_TRUE(is_token(Api::kMessages, R"({"type":"content_block_delta"})", ""));
}

TEST(FirstToken, CapturedStreams) {
  EXPECT_EQ(run(Api::kChat, "vllm/09-chat-stream.response.http").token_at, 1U);
  EXPECT_EQ(run(Api::kChat, "vllm/11-chat-stream-usage-continuous.response.http").token_at, 1U);
  EXPECT_EQ(run(Api::kCompletions, "vllm/21-completion-stream-usage.response.http").token_at, 0U);
  EXPECT_EQ(run(Api::kChat, "llama.cpp/12-chat-stream.response.http").token_at, 1U);
  // Two events of progress and the role come first.
  EXPECT_EQ(run(Api::kChat, "llama.cpp/14-chat-stream-timings.response.http").token_at, 3U);
}

TEST(Usage, CapturedStreams) {
  AnswerFacts facts = run(Api::kChat, "vllm/10-chat-stream-usage.response.http").facts;
  EXPECT_EQ(facts.prompt_tokens, 20U);
  EXPECT_EQ(facts.completion_tokens, 6U);
  EXPECT_EQ(facts.cached_tokens, 0U);
  facts = run(Api::kChat, "vllm/15-chat-long-cached-stream-usage.response.http").facts;
  EXPECT_EQ(facts.prompt_tokens, 549U);
  EXPECT_EQ(facts.cached_tokens, 544U);
  facts = run(Api::kChat, "vllm/09-chat-stream.response.http").facts;
  EXPECT_EQ(facts.prompt_tokens, std::nullopt);
  // llama.cpp without usage: its timings say it.
  facts = run(Api::kChat, "llama.cpp/14-chat-stream-timings.response.http").facts;
  EXPECT_EQ(facts.prompt_tokens, 20U);
  EXPECT_EQ(facts.cached_tokens, 19U);
  EXPECT_EQ(facts.completion_tokens, 6U);
}

AnswerFacts plain(Api api, const std::string& body) {
  PlainAnswer answer;
  for (std::size_t at = 0; at < body.size(); at += 1000) answer.feed(body.substr(at, 1000));
  AnswerReader reader;
  AnswerFacts facts;
  reader.plain(api, answer.beginning(), answer.end(), facts);
  return facts;
}

TEST(Usage, CapturedPlainAnswers) {
  const auto body = [](const std::string& name) {
    const std::string bytes = test_data(name);
    return bytes.substr(bytes.find("\r\n\r\n") + 4);
  };
  AnswerFacts facts = plain(Api::kChat, body("vllm/14-chat-long-cached.response.http"));
  EXPECT_EQ(facts.prompt_tokens, 549U);
  EXPECT_EQ(facts.completion_tokens, 2U);
  EXPECT_EQ(facts.cached_tokens, 544U);
  facts = plain(Api::kChat, body("llama.cpp/16-chat-long-cached.response.http"));
  EXPECT_EQ(facts.prompt_tokens, 549U);
  EXPECT_EQ(facts.cached_tokens, 548U);
  facts = plain(Api::kOther, body("llama.cpp/20-completion-native.response.http"));
  EXPECT_TRUE(facts.prompt_tokens.has_value());
  facts = plain(Api::kChat, body("vllm/35-err-unknown-model.response.http"));
  EXPECT_EQ(facts.prompt_tokens, std::nullopt);
}

TEST(Usage, TheLastObjectCountsHoweverLongTheAnswerIs) {
  const std::string text(50'000, 'x');
  const AnswerFacts facts =
      plain(Api::kChat, R"({"choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":1} )" +
                            text + R"("}}],"usage" : {"prompt_tokens": 7, "completion_tokens":)" +
                            R"(3,"prompt_tokens_details":null},"x":{"usage":null}})");
  EXPECT_EQ(facts.prompt_tokens, 7U);
  EXPECT_EQ(facts.completion_tokens, 3U);
  EXPECT_EQ(facts.cached_tokens, std::nullopt);
}

TEST(Usage, IsFoundWhereverItStands) {
  AnswerReader reader;
  for (std::size_t before = 0; before < 20; ++before) {
    for (std::size_t behind = 0; behind < 20; ++behind) {
      const std::string data = "{\"x\":\"" + std::string(before, 'u') +
                               R"(","usage":{"prompt_tokens":8},"timings":{"cache_n":5}})" +
                               std::string(behind, ' ');
      AnswerFacts facts;
      reader.event(Api::kChat, "", data, facts);
      EXPECT_EQ(facts.prompt_tokens, 8U) << data;
      EXPECT_EQ(facts.cached_tokens, 5U) << data;
    }
  }
}

TEST(Usage, FormsOfTheOtherApis) {
  AnswerReader reader;
  AnswerFacts responses;
  reader.event(Api::kResponses, "response.completed",
               R"({"type":"response.completed","response":{"id":"r","usage":{"input_tokens":9,)"
               R"("input_tokens_details":{"cached_tokens":4},"output_tokens":5}}})",
               responses);
  EXPECT_EQ(responses.prompt_tokens, 9U);
  EXPECT_EQ(responses.cached_tokens, 4U);
  EXPECT_EQ(responses.completion_tokens, 5U);

  AnswerFacts messages;
  reader.event(
      Api::kMessages, "message_start",
      R"({"type":"message_start","message":{"usage":{"input_tokens":10,)"
      R"("cache_read_input_tokens":30,"cache_creation_input_tokens":2,"output_tokens":1}}})",
      messages);
  reader.event(Api::kMessages, "message_delta",
               R"({"type":"message_delta","usage":{"output_tokens":15}})", messages);
  EXPECT_EQ(messages.prompt_tokens, 42U);
  EXPECT_EQ(messages.cached_tokens, 30U);
  EXPECT_EQ(messages.completion_tokens, 15U);
}

TEST(Usage, BrokenObjectsAreNoUsage) {
  AnswerReader reader;
  for (const char* data : {R"({"usage":{)", R"({"usage":{"prompt_tokens":"x"}})", R"({"usage")",
                           R"({"usage":)", R"({"usage":[]})", R"({"usage":{"a":"}"})"}) {
    AnswerFacts facts;
    reader.event(Api::kChat, "", data, facts);
    EXPECT_EQ(facts.prompt_tokens, std::nullopt) << data;
  }
}

// D56
TEST(ResponseId, IsLearntFromPlainAndStreamedAnswers) {
  EXPECT_EQ(plain(Api::kResponses, R"({ "id" : "resp_1","object":"response"})").response_id,
            response_key("resp_1"));
  EXPECT_EQ(plain(Api::kResponses, R"({"object":"response","id":"resp_1"})").response_id,
            response_key("resp_1"));
  EXPECT_EQ(plain(Api::kChat, R"({"id":"chatcmpl-1"})").response_id, 0U);
  EXPECT_EQ(plain(Api::kResponses, R"({"error":{"message":"no"}})").response_id, 0U);
  EXPECT_EQ(plain(Api::kResponses, R"({"id":"resp_)").response_id, 0U);

  AnswerReader reader;
  AnswerFacts facts;
  reader.event(Api::kResponses, "response.created",
               R"({"type":"response.created","sequence_number":0,"response":{"object":"response",)"
               R"("id":"resp_2"}})",
               facts);
  EXPECT_EQ(facts.response_id, response_key("resp_2"));
}

}  // namespace
}  // namespace pointsman
