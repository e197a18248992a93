// Prompts of models with a tokenizer, read by their token ids.

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "features/chat_request.h"
#include "support/byte_model.h"
#include "support/test_data.h"

namespace pointsman {
namespace {

using test::ByteModel;

constexpr Needs kAll{.blocks = true, .session = true};
constexpr std::uint64_t kSecret = 5;

class PromptIds : public testing::Test {
 protected:
  RequestFacts read(Api api, const std::string& body, Needs needs = kAll) {
    RequestFacts facts;
    reader_.read(api, body, body.size(), "", needs, facts);
    return facts;
  }
  RequestFacts chat(const std::string& body) { return read(Api::kChat, body); }
  RequestFacts completion(const std::string& body) { return read(Api::kCompletions, body); }

  static std::vector<BlockHash> blocks(const std::vector<std::uint32_t>& ids,
                                       std::string_view world = "m1", std::string_view salt = "") {
    const TokenChain chain(kSecret);
    std::vector<BlockHash> out;
    chain.extend_blocks(chain.start(world, salt), 0, ids, 16, out);
    return out;
  }
  static std::vector<std::uint32_t> ids_of(std::string_view text, bool plain_prompt = false) {
    std::vector<std::uint32_t> ids;
    if (plain_prompt) ids.push_back(257);
    ByteModel::append(text, ids);
    return ids;
  }

  const ByteModel* model_ = nullptr;
  std::unique_ptr<PromptModels> models_ =
      test::byte_models(std::make_unique<ByteModel>(), &model_, 200'000);
  ModelEstimates estimates_{4};
  ChatRequestReader reader_{{.chain_secret = kSecret},
                            {.estimates = &estimates_, .models = models_.get()}};
};

const std::string kMessages =
    R"([{"role":"user","content":"A question of some length, for more than one block."}])";

std::string chat_body(const std::string& messages, const std::string& more = "") {
  return R"({"model":"m1","messages":)" + messages + more + "}";
}

TEST_F(PromptIds, AChatIsRenderedAndKeyedByItsIds) {
  const RequestFacts facts = chat(chat_body(kMessages));
  const std::vector<std::uint32_t> ids = ids_of("<s><s>" + kMessages + "<s>assistant");
  EXPECT_EQ(facts.blocks, blocks(ids));
  EXPECT_EQ(facts.exact_blocks, ids.size() / 16);
  EXPECT_EQ(facts.prompt_tokens, ids.size());
  EXPECT_EQ(facts.block_tokens, 16U);
  EXPECT_TRUE(facts.exact_tokens);
  EXPECT_EQ(facts.no_ids, "");
  EXPECT_NE(facts.session_key, 0U);
}

TEST_F(PromptIds, WhatGoesIntoATemplateIsHandedToIt) {
  const RequestFacts facts = chat(R"({"messages":)" + kMessages +
                                  R"(,"tools":[{"type":"function"}],"add_generation_prompt":false,)"
                                  R"("chat_template_kwargs":{"thinking":true},"model":"m1"})");
  EXPECT_EQ(facts.blocks,
            blocks(ids_of(R"(<s>[{"type":"function"}]<s>)" + kMessages + R"({"thinking":true})")));
  const RequestFacts nulls = chat(chat_body(
      kMessages, R"(,"tools":null,"chat_template_kwargs":null,"add_generation_prompt":null)"));
  EXPECT_EQ(nulls.blocks, chat(chat_body(kMessages)).blocks);
}

TEST_F(PromptIds, ACompletionIsLedByWhatTheModelPutsThere) {
  const std::string text = "Once upon a time there was a router\\nand <s> a \\u00e9.";
  const RequestFacts facts = completion(R"({"model":"m1","prompt":")" + text + "\"}");
  const std::vector<std::uint32_t> ids =
      ids_of("Once upon a time there was a router\nand <s> a \xc3\xa9.", true);
  EXPECT_EQ(facts.blocks, blocks(ids));
  EXPECT_EQ(facts.prompt_tokens, ids.size());
  const RequestFacts bare =
      completion(R"({"model":"m1","add_special_tokens":false,"prompt":")" + text + "\"}");
  EXPECT_EQ(bare.prompt_tokens, ids.size() - 1);
  EXPECT_NE(bare.blocks, facts.blocks);
}

TEST_F(PromptIds, ABatchIsPlacedByItsFirstTextAndCountedWhole) {
  const std::string one(40, 'a');
  const std::string two(50, 'b');
  const RequestFacts facts =
      completion(R"({"model":"m1","prompt":[")" + one + R"(",")" + two + R"("]})");
  EXPECT_EQ(facts.blocks, blocks(ids_of(one, true)));
  EXPECT_EQ(facts.prompt_tokens, 41U + 51U);
  EXPECT_EQ(facts.chain_tokens, 41U);
}

TEST_F(PromptIds, IdsThatComeAsIdsAreTheSameAsThoseOfTheText) {
  const RequestFacts text = completion(R"({"model":"m1","add_special_tokens":false,"prompt":")" +
                                       std::string(40, 'A') + "\"}");
  std::string list = "65";
  for (int i = 1; i < 40; ++i) list += ",65";
  const RequestFacts ids = completion(R"({"model":"m1","prompt":[)" + list + "]}");
  EXPECT_EQ(ids.blocks, text.blocks);
  EXPECT_EQ(ids.prompt_tokens, 40U);
  EXPECT_EQ(ids.no_ids, "");
}

TEST_F(PromptIds, AliasesShareAWorldAndAdaptersAndSaltsHaveTheirOwn) {
  const auto of = [&](const std::string& name, const std::string& more = "") {
    return chat(R"({"model":")" + name + R"(","messages":)" + kMessages + more + "}").blocks;
  };
  const std::vector<std::uint32_t> ids = ids_of("<s><s>" + kMessages + "<s>assistant");
  EXPECT_EQ(of("alias"), of("m1"));
  EXPECT_EQ(of(""), of("m1"));
  EXPECT_EQ(of("lora"), blocks(ids, "lora"));
  EXPECT_EQ(of("m1", R"(,"cache_salt":"tenant\u002d2")"), blocks(ids, "m1", "tenant-2"));
}

TEST_F(PromptIds, TheNextTurnCostsWhatIsNewInIt) {
  const std::string long_text(3000, 'x');
  std::string messages = R"({"role":"user","content":"<s>)" + long_text + "<s>\"}";
  static_cast<void>(chat(chat_body("[" + messages + "]")));
  const std::size_t before = model_->encoded_bytes.load();
  EXPECT_GE(before, 3000U);
  messages += R"(,{"role":"user","content":"More?"})";
  const RequestFacts next = chat(chat_body("[" + messages + "]"));
  EXPECT_LT(model_->encoded_bytes.load() - before, 200U);
  EXPECT_GE(next.known_bytes, 3000U);
  EXPECT_LT(next.encoded_bytes, 200U);
  EXPECT_EQ(next.blocks, blocks(ids_of("<s><s>[" + messages + "]<s>assistant")));
}

TEST_F(PromptIds, WhatIsBehindAPictureIsKeyedByBytesOnTopOfTheIds) {
  const auto with = [](const std::string& before, const std::string& picture) {
    return chat_body(R"([{"role":"user","content":[{"type":"text","text":")" + before +
                     R"("},{"type":"image_url","image_url":{"url":"data:image/png;base64,)" +
                     picture + R"("}},{"type":"text","text":")" + std::string(300, 'z') +
                     R"("}]}])");
  };
  const std::string text(100, 'a');
  const RequestFacts a = chat(with(text, "AAAA"));
  const RequestFacts b = chat(with(text, "BBBB"));
  ASSERT_GT(a.exact_blocks, 6U);
  ASSERT_GT(a.blocks.size(), a.exact_blocks + 3U);
  ASSERT_EQ(a.exact_blocks, b.exact_blocks);
  const auto end = std::mismatch(a.blocks.begin(), a.blocks.end(), b.blocks.begin());
  const auto shared = static_cast<std::size_t>(end.first - a.blocks.begin());
  EXPECT_GE(shared, a.exact_blocks);
  EXPECT_LE(shared, a.exact_blocks + 2U) << "the message's text before the picture, once more";
  for (std::size_t i = shared; i < a.blocks.size(); ++i) EXPECT_NE(a.blocks[i], b.blocks[i]) << i;
  EXPECT_EQ(chat(with(text, "AAAA")).blocks, a.blocks);
  EXPECT_FALSE(a.exact_tokens);
  EXPECT_GT(a.prompt_tokens, TokenCount::kPerMedium);
  // The text before differs, if only within the last incomplete block of ids: so does what follows.
  const RequestFacts c = chat(with(text + "b", "AAAA"));
  EXPECT_NE(c.blocks.back(), a.blocks.back());
}

TEST_F(PromptIds, WhatCannotBecomeIdsStaysTextAndSaysWhy) {
  const auto why = [&](Api api, const std::string& body) {
    const RequestFacts facts = read(api, body);
    EXPECT_EQ(facts.exact_blocks, 0U) << body;
    EXPECT_GT(facts.prompt_tokens, 0U) << body;
    return std::string(facts.no_ids);
  };
  EXPECT_EQ(why(Api::kChat, chat_body(R"([{"role":"alien","content":"x"}])")), "template");
  EXPECT_EQ(why(Api::kChat, chat_body(kMessages, R"(,"chat_template":"{{ x }}")")), "own_prompt");
  EXPECT_EQ(why(Api::kResponses, R"({"model":"m1","input":"hello"})"), "api");
  EXPECT_EQ(why(Api::kMessages, chat_body(kMessages)), "api");
  EXPECT_EQ(why(Api::kCompletions, R"({"model":"m1","prompt":["a",null]})"), "text");
  EXPECT_EQ(why(Api::kCompletions, R"({"model":"m1","prompt":"\ud83d"})"), "text");
  EXPECT_EQ(why(Api::kChat,
                chat_body(R"([{"role":"user","content":")" + std::string(200'000, 'x') + R"("}])")),
            "too_large");
  EXPECT_EQ(why(Api::kChat, R"({"model":"another","messages":)" + kMessages + "}"), "");
}

TEST_F(PromptIds, ABeginningStaysText) {
  RequestFacts facts;
  const std::string body =
      chat_body(R"([{"role":"user","content":")" + std::string(500, 'x') + R"("}])");
  reader_.read_partial(Api::kChat, std::string_view(body).substr(0, 300), "", kAll, facts);
  EXPECT_EQ(facts.no_ids, "not_whole");
  EXPECT_FALSE(facts.blocks.empty());
  EXPECT_EQ(facts.exact_blocks, 0U);
}

TEST_F(PromptIds, TextOfAModelWithATokenizerIsReadAsAnyText) {
  ChatRequestReader plain({.chain_secret = kSecret});
  const std::string body = chat_body(kMessages, R"(,"chat_template":"x")");
  RequestFacts expected;
  plain.read(Api::kChat, body, body.size(), "", kAll, expected);
  const RequestFacts facts = chat(body);
  EXPECT_EQ(facts.blocks, expected.blocks);
  EXPECT_EQ(facts.prompt_tokens, expected.prompt_tokens);
  EXPECT_EQ(facts.session_key, expected.session_key);
}

TEST_F(PromptIds, TheSessionIsTheSameWithIdsAndWithout) {
  ChatRequestReader plain({.chain_secret = kSecret});
  const std::string body =
      chat_body(R"([{"role":"system","content":"s"},{"role":"user","content":"u"},)"
                R"({"role":"assistant","content":"a"},{"role":"user","content":"v"}])");
  RequestFacts expected;
  plain.read(Api::kChat, body, body.size(), "", kAll, expected);
  EXPECT_EQ(chat(body).session_key, expected.session_key);
}

TEST_F(PromptIds, NothingIsMadeWhereNobodyAsks) {
  const RequestFacts facts = read(Api::kChat, chat_body(kMessages), {});
  EXPECT_TRUE(facts.blocks.empty());
  EXPECT_EQ(facts.no_ids, "");
  EXPECT_EQ(model_->encoded_bytes.load(), 0U);
}

TEST_F(PromptIds, ALongPromptIsLeftPendingAndAdoptedWhenMade) {
  for (const std::size_t size : {std::size_t{20'000}, std::size_t{150'000}}) {
    const std::string body =
        chat_body(R"([{"role":"user","content":")" + std::string(size, 'x') + R"("}])");
    const std::string messages = body.substr(body.find('['), body.size() - body.find('[') - 1);
    RequestFacts facts;
    reader_.read(Api::kChat, body, body.size(), "", kAll, facts);
    ASSERT_TRUE(facts.ids_pending);
    EXPECT_NE(facts.session_key, 0U);
    PromptText prompt = reader_.take_pending();
    // Another request comes in between.
    static_cast<void>(chat(chat_body(kMessages)));
    PromptTokens tokens(models_->cache(), kSecret, 16);
    tokens.run(prompt);
    ASSERT_EQ(prompt.failure, "");
    reader_.adopt(prompt, Api::kChat, body, body.size(), facts);
    EXPECT_FALSE(facts.ids_pending);
    EXPECT_EQ(facts.blocks, blocks(ids_of("<s><s>" + messages + "<s>assistant"))) << size;
    // Once known it is made at once, if it is short enough to be rendered at once.
    EXPECT_EQ(chat(body).ids_pending, size > ChatRequestReader::kRenderedAtOnce);
  }
}

TEST_F(PromptIds, AChatOfVeryManyMessagesIsLeftPending) {
  std::string messages = R"([{"role":"user","content":"a"})";
  for (int i = 0; i < 300; ++i) messages += R"(,{"role":"user","content":"a"})";
  EXPECT_TRUE(chat(chat_body(messages + "]")).ids_pending);
}

TEST_F(PromptIds, APendingPromptMayBeReadAsText) {
  const std::string body =
      chat_body(R"([{"role":"user","content":")" + std::string(20'000, 'x') + R"("}])");
  RequestFacts facts;
  reader_.read(Api::kChat, body, body.size(), "", kAll, facts);
  ASSERT_TRUE(facts.ids_pending);
  reader_.read_as_text(Api::kChat, body, body.size(), "", kAll, "busy", facts);
  EXPECT_FALSE(facts.ids_pending);
  EXPECT_EQ(facts.no_ids, "busy");
  EXPECT_GT(facts.blocks.size(), 300U);
  EXPECT_EQ(facts.exact_blocks, 0U);
}

TEST_F(PromptIds, AModelWithoutATemplateHasIdsOfPlainPromptsAlone) {
  auto models = test::byte_models(std::make_unique<ByteModel>(/*chats=*/false));
  ChatRequestReader reader({.chain_secret = kSecret}, {.models = models.get()});
  RequestFacts facts;
  const std::string body = chat_body(kMessages);
  reader.read(Api::kChat, body, body.size(), "", kAll, facts);
  EXPECT_EQ(facts.no_ids, "no_template");
  const std::string plain = R"({"model":"m1","prompt":"some text of more than a block"})";
  reader.read(Api::kCompletions, plain, plain.size(), "", kAll, facts);
  EXPECT_EQ(facts.prompt_tokens, 31U);
  EXPECT_TRUE(facts.exact_tokens);
}

}  // namespace
}  // namespace pointsman
