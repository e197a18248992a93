#include "replica/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pointsman {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

CompletionRequest accepted(CompletionApi api, std::string_view body) {
  auto parsed = parse_completion(api, body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << error->body();
    return {};
  }
  return std::get<CompletionRequest>(parsed);
}

ApiError refused(CompletionApi api, std::string_view body) {
  auto parsed = parse_completion(api, body);
  if (std::holds_alternative<CompletionRequest>(parsed)) {
    ADD_FAILURE() << "accepted " << body;
    return {};
  }
  return std::get<ApiError>(parsed);
}

TEST(ParseCompletion, ReadsAChat) {
  const CompletionRequest request = accepted(CompletionApi::kChat, R"({"model": "tiny",
    "messages": [{"role": "user", "content": "hi"}], "stream": true, "max_tokens": 7,
    "stream_options": {"include_usage": true}, "n": 3, "cache_salt": "s", "request_id": "r"})");
  EXPECT_EQ(request.model, "tiny");
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_EQ(request.max_tokens, 7U);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(request.request_id, "r");
  ASSERT_THAT(request.prompts, SizeIs(1));
  ChatTemplate chat;
  chat.add("user", "hi");
  EXPECT_EQ(request.prompts[0], tokens_of(chat.finish()));
}

TEST(ParseCompletion, NewerLimitCountsBeforeTheOlder) {
  const CompletionRequest request = accepted(
      CompletionApi::kChat, R"({"messages": [], "max_completion_tokens": 5, "max_tokens": 9})");
  EXPECT_EQ(request.max_tokens, 5U);
}

TEST(ParseCompletion, PartsAreJoinedAndNullContentIsEmpty) {
  const CompletionRequest parts = accepted(CompletionApi::kChat, R"({"messages": [
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null}]})");
  ChatTemplate chat;
  chat.add("user", "ab");
  chat.add("assistant", "");
  EXPECT_EQ(parts.prompts[0], tokens_of(chat.finish()));
}

TEST(ParseCompletion, PromptsMayBeTextIdsOrABatchOfEither) {
  const auto prompts = [](std::string_view prompt) {
    return accepted(CompletionApi::kCompletions, R"({"prompt": )" + std::string(prompt) + "}")
        .prompts;
  };
  EXPECT_THAT(prompts(R"("abcd")"), ElementsAre(tokens_of("abcd")));
  EXPECT_THAT(prompts("[300, 301]"), ElementsAre(TokenIds{300, 301}));
  EXPECT_THAT(prompts(R"(["abcd", "e"])"), ElementsAre(tokens_of("abcd"), tokens_of("e")));
  EXPECT_THAT(prompts("[[1, 2], [3]]"), ElementsAre(TokenIds{1, 2}, TokenIds{3}));
}

TEST(ParseCompletion, RefusesWhatVllmRefuses) {
  EXPECT_THAT(refused(CompletionApi::kChat, R"({"model": "tiny", "messages": [)").body(),
              HasSubstr(R"("type":"Bad Request","param":"body.31","code":400)"));
  EXPECT_EQ(refused(CompletionApi::kChat, "hello").status, 400);
  EXPECT_EQ(refused(CompletionApi::kChat, "[]").status, 400);
  EXPECT_EQ(refused(CompletionApi::kChat, R"({"model": "tiny"})").param, "body.messages");
  EXPECT_EQ(refused(CompletionApi::kCompletions, R"({"model": "tiny"})").param, "body.prompt");
  const ApiError zero = refused(CompletionApi::kChat, R"({"messages": [], "max_tokens": 0})");
  const std::string_view captured =
      R"-({"error":{"message":"max_tokens must be at least 1, got 0. (parameter=max_tokens, )-"
      R"-(value=0)","type":"BadRequestError","param":"max_tokens","code":400}})-";
  EXPECT_EQ(zero.body(), captured);
  EXPECT_EQ(refused(CompletionApi::kChat,
                    R"({"messages": [], "stream_options": {"include_usage": true}})")
                .param,
            "stream_options");
  for (const char* prompt : {"7", "[]", "[1, \"a\"]", "[[]]", "[-1]", "\"\"", "{}"}) {
    EXPECT_EQ(
        refused(CompletionApi::kCompletions, R"({"prompt": )" + std::string(prompt) + "}").status,
        400)
        << prompt;
  }
}

TEST(ParseCompletion, TokenizeTakesEitherForm) {
  EXPECT_EQ(accepted(CompletionApi::kTokenize, R"({"prompt": "abcdefgh"})").prompts[0].size(), 2U);
  const auto with =
      accepted(CompletionApi::kTokenize, R"({"messages": [{"role": "user", "content": "hi"}]})");
  const auto without =
      accepted(CompletionApi::kTokenize, R"({"messages": [{"role": "user", "content": "hi"}],
                                            "add_generation_prompt": false})");
  EXPECT_EQ(with.prompts[0].size(), without.prompts[0].size() + 4);
}

}  // namespace
}  // namespace pointsman
